"""Import stand-ins for packages that sglang imports but never uses in a CPU test run (own code)."""

import importlib.abc
import importlib.machinery
import sys
import types


class Any:
    """A value that can be subscripted, called, decorated with, subclassed or compared."""

    def __init__(self, *a, **k):
        pass

    def __call__(self, *a, **k):
        if len(a) == 1 and not k and callable(a[0]):
            return a[0]  # used as a decorator
        return Any()

    def __getitem__(self, i):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Any()

    def __iter__(self):
        return iter(())

    def __contains__(self, x):
        return False

    def __or__(self, o):
        return self

    __ror__ = __or__


class Meta(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        v = Any()
        setattr(cls, name, v)
        return v


class Kernel:
    """What a decorated GPU kernel turns into: importable, not launchable."""

    def __init__(self, fn):
        self.fn = fn
        self.__name__ = getattr(fn, "__name__", "kernel")
        self.__doc__ = getattr(fn, "__doc__", None)

    def __call__(self, *a, **k):
        raise NotImplementedError("stub: GPU kernel %s called on CPU" % self.__name__)

    def __getitem__(self, grid):
        return self


def kernel_decorator(*a, **k):
    if a and callable(a[0]) and not isinstance(a[0], (list, dict)):
        return Kernel(a[0]) if not isinstance(a[0], Kernel) else a[0]
    return lambda fn: fn if isinstance(fn, Kernel) else Kernel(fn)


class _Loader(importlib.abc.Loader):
    def create_module(self, spec):
        m = types.ModuleType(spec.name)
        m.__path__ = []
        m.__getattr__ = _getattr(m)
        return m

    def exec_module(self, module):
        pass


def _getattr(module):
    def f(name):
        if name.startswith("__"):
            raise AttributeError(name)
        v = Meta(name, (Any,), {"__module__": module.__name__}) if name[:1].isupper() else Any()
        setattr(module, name, v)
        return v

    return f


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, root):
        self.root = root + "."

    def find_spec(self, name, path=None, target=None):
        if name.startswith(self.root):
            return importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)


def install(module_name):
    sys.meta_path.append(Finder(module_name))
    m = sys.modules[module_name]
    m.__path__ = []
    m.__getattr__ = _getattr(m)
