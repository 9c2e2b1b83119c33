"""The built-in demo box: simulated programs in a temporary home, behind an SSH server of this process."""
