"""
The Xid numbers with which NVIDIA's driver tells the kernel's log of faults of a GPU.

Source: NVIDIA, Xid Errors, "Analyzing Xid Errors with the Xid Catalog" (docs.nvidia.com/deploy/xid-errors),
columns "Description" and "Resolution Bucket (Immediate Action)"; 61 from the catalogue for Volta and older.
"""

from enum import StrEnum

from msgspec import Struct


class Kind(StrEnum):
    """
    Who is at fault. HARDWARE: the GPU, its memory, its link or its firmware; PROGRAM: what ran on it, as
    a rule; NOTICE: a consequence of something else, or what the GPU mended by itself.
    """

    HARDWARE = "hardware"
    PROGRAM = "program"
    NOTICE = "notice"


class Xid(Struct, frozen=True):
    """
    One number: its meaning, who is at fault, and what NVIDIA advises to do first ("" for nothing).
    """

    meaning: str
    kind: Kind
    advice: str = ""


_RESTART = "start the program again"
_RESET = "reset the GPU"
_REBOOT = "restart the machine"

XIDS = {
    8: Xid("the GPU stopped processing", Kind.PROGRAM, _RESTART),
    11: Xid("an invalid or corrupted stream of commands", Kind.PROGRAM, _RESTART),
    13: Xid("an exception of the graphics engine, mostly an access out of bounds", Kind.PROGRAM, _RESTART),
    31: Xid("a page fault in GPU memory, mostly an illegal address", Kind.PROGRAM, _RESTART),
    32: Xid("an invalid or corrupted stream of commands, mostly a poor PCIe link", Kind.PROGRAM, _RESTART),
    43: Xid("the GPU stopped processing for a fault of the program", Kind.PROGRAM),
    44: Xid("a fault of the graphics engine during a context switch", Kind.PROGRAM),
    45: Xid("cleaned up after a program that was ended", Kind.NOTICE),
    46: Xid("the GPU stopped processing", Kind.HARDWARE, _RESET),
    48: Xid("an uncorrectable (double-bit) memory error", Kind.HARDWARE, _RESET),
    61: Xid("a breakpoint of an internal micro-controller", Kind.HARDWARE, _RESET),
    62: Xid("an internal micro-controller halted", Kind.HARDWARE, _RESET),
    63: Xid("a faulty row of memory was marked for replacement", Kind.NOTICE),
    64: Xid("a faulty row of memory could not be replaced", Kind.HARDWARE, _RESET),
    69: Xid("an error of the graphics engine's class", Kind.PROGRAM, _RESTART),
    74: Xid("an NVLink error", Kind.HARDWARE, _RESET),
    79: Xid("the GPU has fallen off the bus", Kind.HARDWARE, _REBOOT),
    92: Xid("a high rate of single-bit memory errors", Kind.NOTICE),
    94: Xid("an uncorrectable memory error, contained to one program", Kind.HARDWARE, _RESTART),
    95: Xid("an uncorrectable memory error that was not contained", Kind.HARDWARE, _RESET),
    109: Xid("a context switch timed out", Kind.HARDWARE, _RESET),
    110: Xid("a security fault", Kind.HARDWARE, _RESET),
    119: Xid("the GPU's own processor (GSP) did not answer in time", Kind.HARDWARE, _RESET),
    120: Xid("an error on the GPU's own processor (GSP)", Kind.HARDWARE, _RESET),
    136: Xid("the training of a link failed", Kind.HARDWARE, _RESET),
    137: Xid("an illegal access over NVLink", Kind.PROGRAM),
    140: Xid("an unrecovered memory error", Kind.HARDWARE, _RESET),
    143: Xid("the GPU could not be initialised", Kind.HARDWARE, _RESET),
    154: Xid("the driver changed what it advises to do", Kind.NOTICE),
    155: Xid("an NVLink is down", Kind.HARDWARE, _RESET),
    156: Xid("a faulty part of the GPU is to be replaced by a spare one", Kind.HARDWARE, _RESET),
    158: Xid("a fatal timeout of the GPU", Kind.HARDWARE, _RESET),
}
"""What is known of each number that a server may meet."""

UNLISTED = Xid("not in mtpdeploy's table; NVIDIA's Xid catalogue tells", Kind.NOTICE)
"""What stands for any other."""
