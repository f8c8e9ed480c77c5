"""Elementary functions, element by element."""

from mpibow.formulas import functions as f

from .pointwise import Element, Pointwise, of_one

__all__ = [
    "Abs",
    "Cos",
    "Exp",
    "Floor",
    "Log",
    "Log1p",
    "Negative",
    "Sign",
    "Sin",
    "Sqrt",
    "abs",
    "cos",
    "exp",
    "floor",
    "log",
    "log1p",
    "neg",
    "sign",
    "sin",
    "sqrt",
]


class Negative(Pointwise):
    """y = -x."""

    kind = "neg"

    @staticmethod
    def value(x: Element) -> Element:
        return -x

    @staticmethod
    def gradient(dy: Element) -> Element:
        return -dy


class Abs(Pointwise):
    """y = |x|; its gradient is 0 at 0."""

    kind = "abs"

    @staticmethod
    def value(x: Element) -> Element:
        return f.abs(x)

    @staticmethod
    def gradient(x: Element, dy: Element) -> Element:
        return f.sign(x) * dy


class Exp(Pointwise):
    """y = exp(x)."""

    kind = "exp"

    @staticmethod
    def value(x: Element) -> Element:
        return f.exp(x)

    @staticmethod
    def gradient(y: Element, dy: Element) -> Element:
        return y * dy


class Log(Pointwise):
    """y = log(x), the natural one."""

    kind = "log"

    @staticmethod
    def value(x: Element) -> Element:
        return f.log(x)

    @staticmethod
    def gradient(x: Element, dy: Element) -> Element:
        return dy / x


class Log1p(Pointwise):
    """y = log(1 + x), exact near 0."""

    kind = "log1p"

    @staticmethod
    def value(x: Element) -> Element:
        return f.log1p(x)

    @staticmethod
    def gradient(x: Element, dy: Element) -> Element:
        return dy / (1 + x)


class Sqrt(Pointwise):
    """y = sqrt(x)."""

    kind = "sqrt"

    @staticmethod
    def value(x: Element) -> Element:
        return f.sqrt(x)

    @staticmethod
    def gradient(y: Element, dy: Element) -> Element:
        return 0.5 * dy / y


class Sin(Pointwise):
    """y = sin(x)."""

    kind = "sin"

    @staticmethod
    def value(x: Element) -> Element:
        return f.sin(x)

    @staticmethod
    def gradient(x: Element, dy: Element) -> Element:
        return f.cos(x) * dy


class Cos(Pointwise):
    """y = cos(x)."""

    kind = "cos"

    @staticmethod
    def value(x: Element) -> Element:
        return f.cos(x)

    @staticmethod
    def gradient(x: Element, dy: Element) -> Element:
        return -f.sin(x) * dy


class Floor(Pointwise):
    """y = the largest whole number that is at most x; its gradient is 0."""

    kind = "floor"

    @staticmethod
    def value(x: Element) -> Element:
        return f.floor(x)

    @staticmethod
    def gradient(dy: Element) -> Element:
        return 0 * dy


class Sign(Pointwise):
    """y = 1, 0 or -1, as x is above, at or below 0; its gradient is 0."""

    kind = "sign"

    @staticmethod
    def value(x: Element) -> Element:
        return f.sign(x)

    @staticmethod
    def gradient(dy: Element) -> Element:
        return 0 * dy


neg = of_one(Negative(), "-x, of any shape; `-x` as well.")
abs = of_one(Abs(), "|x|, of any shape.")
exp = of_one(Exp(), "exp(x), of any shape.")
log = of_one(Log(), "The natural logarithm, of any shape: NaN below 0.")
log1p = of_one(Log1p(), "log(1 + x), of any shape, exact near 0.")
sqrt = of_one(Sqrt(), "The square root, of any shape: NaN below 0, an infinite gradient at 0.")
sin = of_one(Sin(), "sin(x), of any shape.")
cos = of_one(Cos(), "cos(x), of any shape.")
floor = of_one(Floor(), "The largest whole number that is at most x, of any shape; its gradient is 0.")
sign = of_one(Sign(), "1, 0 or -1, as x is above, at or below 0; its gradient is 0.")
