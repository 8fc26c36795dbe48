"""Dataclasses and named tuples whose methods are made when first used.

Modules that a small check imports have these. The decorator of the standard library imports
`inspect`, 5 ms, and compiles the methods of each class, 0.3 to 1.5 ms; its `NamedTuple` compiles
each annotation, 0.1 to 0.3 ms a class: together a quarter of the time of a small file. These
classes behave as its own do, with `dataclasses.fields`, `replace`, `asdict` and `is_dataclass`, and
to type checkers they are its own. No dataclass has a base that the standard decorator made.
"""

from __future__ import annotations

import operator
import sys
from collections import _tuplegetter  # type: ignore[attr-defined]
from collections.abc import Callable, Iterable
from functools import cache
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

_NOTHING = object()


class _Field:
    """One field, with the arguments of `field`."""

    def __init__(
        self,
        *,
        default: object = _NOTHING,
        default_factory: Callable[[], object] | None = None,
        repr: bool = True,
        compare: bool = True,
        hash: bool | None = None,
    ) -> None:
        self.default = default
        self.default_factory = default_factory
        self.repr = repr
        self.compare = compare
        self.is_hashed = compare if hash is None else hash
        self.kind = ""
        """Its type, as it is spelled."""
        self.kw_only = False


def _replace(value: Any, /, **changes: Any) -> Any:
    if not hasattr(value, "_lazy_fields"):
        import dataclasses

        return dataclasses.replace(value, **changes)
    for name in value._lazy_fields:
        if name not in changes:
            changes[name] = getattr(value, name)
    return type(value)(**changes)


def _dataclass(kind: type | None = None, /, **options: bool) -> Any:
    if kind is None:
        return lambda decorated: _with_methods(decorated, **options)
    return _with_methods(kind)


def _with_methods(
    kind: Any,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    repr: bool = True,
    order: bool = False,
    kw_only: bool = False,
) -> Any:
    fields = _fields_of(kind, kw_only)
    if slots:
        kind = _slotted(kind, fields)
    kind._lazy_fields, kind._lazy_is_frozen = fields, frozen
    for name in ("__dataclass_fields__", "__dataclass_params__", "__signature__"):
        setattr(kind, name, _Standard(name))
    own = vars(kind)
    has_hash = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
    methods: dict[str, Any] = {"__init__": _first_init(kind)}
    if repr:
        methods["__repr__"] = _repr_of([name for name, field in fields.items() if field.repr])
    compared = _getter([name for name, field in fields.items() if field.compare])
    if eq:
        methods["__eq__"] = _comparison(operator.eq, compared)
    for name, method in methods.items():
        if name not in own:
            setattr(kind, name, method)
    if eq and not has_hash:
        counted = [name for name, field in fields.items() if field.is_hashed]
        kind.__hash__ = _hash_of(_getter(counted)) if frozen else None
    if order:
        for name in ("__lt__", "__le__", "__gt__", "__ge__"):
            setattr(kind, name, _comparison(getattr(operator, name), compared))
    if "__match_args__" not in own:
        positional = [name for name, field in fields.items() if not field.kw_only]
        setattr(kind, "__match_args__", tuple(positional))  # noqa: B010
    if frozen:
        _freeze(kind, slots=slots)
    return kind


def _fields_of(kind: type, kw_only: bool) -> dict[str, _Field]:
    """The fields of a class and its bases; the class keeps their plain defaults."""
    fields: dict[str, _Field] = {}
    for base in reversed(kind.__mro__[1:]):
        fields.update(vars(base).get("_lazy_fields", {}))
    for name, annotation in kind.__annotations__.items():
        if annotation.startswith("ClassVar"):
            continue
        default = getattr(kind, name, _NOTHING)
        if isinstance(default, MemberDescriptorType):  # the slot of a base
            default = _NOTHING
        field = default if isinstance(default, _Field) else _Field(default=default)
        field.kind, field.kw_only = annotation, kw_only
        fields[name] = field
        if field is default:
            if field.default is _NOTHING:
                delattr(kind, name)
            else:
                setattr(kind, name, field.default)
    return fields


def _slotted(kind: type, fields: dict[str, _Field]) -> Any:
    """The class again, with slots: they cannot be added to one."""
    inherited = {slot for base in kind.__mro__[1:] for slot in vars(base).get("__slots__", ())}
    left_out = {"__dict__", "__weakref__", *fields}
    namespace = {name: value for name, value in vars(kind).items() if name not in left_out}
    namespace["__slots__"] = tuple(name for name in fields if name not in inherited)
    made: Any = type(kind)(kind.__name__, kind.__bases__, namespace)
    made.__qualname__ = kind.__qualname__
    return made


def _first_init(kind: Any) -> Callable[..., None]:
    """An `__init__` that puts the one with the fields as parameters in its place."""

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        kind.__init__ = _init_of(kind)
        kind.__init__(self, *arguments, **named)

    __init__.__qualname__ = f"{kind.__qualname__}.__init__"
    return __init__


def _init_of(kind: Any) -> Any:
    scope: dict[str, Any] = {"_assign": object.__setattr__, "_made": _NOTHING}
    positional, lines = ["self"], ["pass"]
    named: list[str] = []
    for name, field in kind._lazy_fields.items():
        parameter = value = name
        if field.default_factory is not None:
            parameter = f"{name}=_made"
            value = f"_new_{name}() if {name} is _made else {name}"
            scope[f"_new_{name}"] = field.default_factory
        elif field.default is not _NOTHING:
            parameter = f"{name}=_default_{name}"
            scope[f"_default_{name}"] = field.default
        (named if field.kw_only else positional).append(parameter)
        is_frozen = kind._lazy_is_frozen
        lines.append(f"_assign(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = [*positional, *(["*", *named] if named else [])]
    exec(f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(lines), scope)
    scope["__init__"].__qualname__ = f"{kind.__qualname__}.__init__"
    return scope["__init__"]


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns the values of fields as a tuple."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _repr_of(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        listed = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({listed})"

    return __repr__


def _hash_of(counted: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    return lambda self: hash(counted(self))


def _comparison(
    compare: Callable[[Any, Any], Any], compared: Callable[[Any], tuple[Any, ...]]
) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compare(compared(self), compared(other))

    return method


def _freeze(kind: Any, *, slots: bool) -> None:
    """Refuse assignments; with slots, what unpickles a value must go round that."""

    def refuse(self: Any, name: str, *values: Any) -> None:
        from dataclasses import FrozenInstanceError

        verb = "assign to" if values else "delete"
        raise FrozenInstanceError(f"cannot {verb} field {name!r}")

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in self._lazy_fields]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(self._lazy_fields, state, strict=True):
            object.__setattr__(self, name, value)

    kind.__setattr__ = kind.__delattr__ = refuse
    if slots:
        kind.__getstate__, kind.__setstate__ = __getstate__, __setstate__


class _Standard:
    """An attribute that the standard decorator gives a class: made when it is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, value: object, kind: type) -> Any:
        twin = _twin(kind)
        if self.name != "__signature__":
            return getattr(twin, self.name)
        from inspect import signature

        return signature(twin)


@cache
def _twin(kind: Any) -> type:
    """A class with the same fields that the standard decorator made."""
    import dataclasses

    namespace: dict[str, Any] = {"__module__": kind.__module__, "__annotations__": {}}
    for name, field in kind._lazy_fields.items():
        options = {"repr": field.repr, "compare": field.compare, "hash": field.is_hashed}
        if field.default is not _NOTHING:
            options["default"] = field.default
        if field.default_factory is not None:
            options["default_factory"] = field.default_factory
        namespace[name] = dataclasses.field(**options, kw_only=field.kw_only)
        namespace["__annotations__"][name] = field.kind
    made = type(kind.__name__, (), namespace)
    return dataclasses.dataclass(frozen=kind._lazy_is_frozen)(made)


class _Tuple(tuple[Any, ...]):
    """The methods of named tuples."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Any:
        return cls(*values)

    def _replace(self, /, **changes: Any) -> Any:
        value = tuple.__new__(type(self), map(changes.pop, self._fields, self))
        if changes:
            kind = TypeError if sys.version_info >= (3, 13) else ValueError  # as Python's own
            raise kind(f"Got unexpected field names: {list(changes)!r}")
        return value

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        listed = ", ".join([f"{name}={value!r}" for name, value in self._asdict().items()])
        return f"{type(self).__name__}({listed})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


class _NamedTupleMeta(type):
    """Makes a class of tuples of each class that has `NamedTuple` as its base."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, namespace)
        fields = tuple(namespace.get("__annotations__", ()))
        defaults = {field: namespace[field] for field in fields if field in namespace}
        namespace.update(zip(fields, map(_tuplegetter, range(len(fields)), fields), strict=True))
        namespace |= {"__slots__": (), "_fields": fields, "__match_args__": fields}
        namespace |= {"__new__": _New(), "_field_defaults": defaults}
        return type(name, (_Tuple,), namespace)


class _New:
    """The `__new__` of a named tuple: puts the one with the fields as parameters in its place."""

    def __set_name__(self, kind: Any, name: str) -> None:
        self.kind = kind

    def __get__(self, value: object, kind: type) -> Any:
        names = "".join([f"{name}, " for name in self.kind._fields])
        new = eval(f"lambda _cls, {names}: _new(_cls, ({names}))", {"_new": tuple.__new__})
        new.__defaults__ = tuple(self.kind._field_defaults.values())
        self.kind.__new__ = staticmethod(new)
        return new


class _NamedTuple(metaclass=_NamedTupleMeta):
    """The base of a class of tuples, as `typing.NamedTuple`."""


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
    from typing import NamedTuple as NamedTuple
else:
    dataclass, field, replace, NamedTuple = _dataclass, _Field, _replace, _NamedTuple
