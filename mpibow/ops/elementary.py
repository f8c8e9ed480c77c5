"""Elementary functions, element by element."""

from mpibow.formulas import functions as f

from .pointwise import Element, Elementary, Pointwise, of_one

__all__ = [
    "Abs",
    "Cos",
    "Exp",
    "Expm1",
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
    "expm1",
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


class Abs(Elementary):
    """y = |x|; its gradient is 0 at 0."""

    kind = "abs"

    @staticmethod
    def gradient(x: Element, dy: Element) -> Element:
        return f.sign(x) * dy


class Exp(Elementary):
    """y = exp(x)."""

    kind = "exp"

    @staticmethod
    def gradient(y: Element, dy: Element) -> Element:
        return y * dy


class Expm1(Elementary):
    """y = exp(x) - 1, exact near 0."""

    kind = "expm1"

    @staticmethod
    def gradient(x: Element, dy: Element) -> Element:
        return f.exp(x) * dy


class Log(Elementary):
    """y = log(x), the natural one."""

    kind = "log"

    @staticmethod
    def gradient(x: Element, dy: Element) -> Element:
        return dy / x


class Log1p(Elementary):
    """y = log(1 + x), exact near 0."""

    kind = "log1p"

    @staticmethod
    def gradient(x: Element, dy: Element) -> Element:
        return dy / (1 + x)


class Sqrt(Elementary):
    """y = sqrt(x)."""

    kind = "sqrt"

    @staticmethod
    def gradient(y: Element, dy: Element) -> Element:
        return 0.5 * dy / y


class Sin(Elementary):
    """y = sin(x)."""

    kind = "sin"

    @staticmethod
    def gradient(x: Element, dy: Element) -> Element:
        return f.cos(x) * dy


class Cos(Elementary):
    """y = cos(x)."""

    kind = "cos"

    @staticmethod
    def gradient(x: Element, dy: Element) -> Element:
        return -f.sin(x) * dy


class Stepwise(Elementary):
    """A function whose gradient is 0, whatever stands behind it: 0 times infinity is not."""

    differentiable = None
    flat = (0,)


class Floor(Stepwise):
    """y = the largest whole number that is at most x; its gradient is 0."""

    kind = "floor"


class Sign(Stepwise):
    """y = 1, 0 or -1, as x is above, at or below 0; its gradient is 0."""

    kind = "sign"


neg = of_one(Negative(), "-x, of any shape; `-x` as well.")
abs = of_one(Abs(), "|x|, of any shape.")
exp = of_one(Exp(), "exp(x), of any shape.")
expm1 = of_one(Expm1(), "exp(x) - 1, of any shape, exact near 0.")
log = of_one(Log(), "The natural logarithm, of any shape: NaN below 0.")
log1p = of_one(Log1p(), "log(1 + x), of any shape, exact near 0.")
sqrt = of_one(Sqrt(), "The square root, of any shape: NaN below 0, an infinite gradient at 0.")
sin = of_one(Sin(), "sin(x), of any shape.")
cos = of_one(Cos(), "cos(x), of any shape.")
floor = of_one(Floor(), "The largest whole number that is at most x, of any shape; its gradient is 0.")
sign = of_one(Sign(), "1, 0 or -1, as x is above, at or below 0; its gradient is 0.")
