/*
 * The sentences of fault.h.
 * SPDX-License-Identifier: MIT
 */
#include "lang/fault.h"

#include "lang/lower.h"

#include <stdio.h>
#include <string.h>

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

void fault_call_depth(diagnostics *d, place at, const char *name)
{
    diagnose(d, E105, at, "split it; if it calls itself through a function constant, write a loop",
             "calls nested deeper than %d: `%s`", CALL_DEPTH_LIMIT, name);
}

void fault_expression_depth(diagnostics *d, place at)
{
    diagnose(d, E105, at, "give parts of it names", "expressions of nested calls deeper than %d",
             EXPRESSION_DEPTH_LIMIT);
}

void fault_constant(diagnostics *d, error_code code, place at)
{
    diagnose(d, code, at, constant_fault_advice(code), "%s", constant_fault_text(code));
}

void fault_join(diagnostics *d, place at, dtype a, dtype b)
{
    diagnose(d, E206, at, "cast one of them", "`%s` with `%s`", type_text(a), type_text(b));
}

void fault_integers(diagnostics *d, place at, const char *word)
{
    diagnose(d, E211, at,
             word[0] == '^' ? "`^` is exclusive-or; a power is `pow(x, 2)`, or `x * x`"
                            : "cast the operands, or use `bitcast`",
             "`%s` needs integers", word);
}

void fault_generic(diagnostics *d, place at, const char *name, dtype a, dtype b)
{
    diagnose(d, E215, at, "cast one of them", "`%s` is both `%s` and `%s`", name, type_text(a), type_text(b));
}

void fault_narrow(diagnostics *d, place at, const char *name, dtype from, dtype to)
{
    diagnose(d, E213, at, "cast it, or declare the function with a generic type: `T f(T x)`",
             "argument `%s` would narrow `%s` to `%s`", name, type_text(from), type_text(to));
}

void fault_tf32(diagnostics *d, place at, dtype of)
{
    diagnose(d, E311, at, "cast it to `float` first", "`tf32` of `%s`", type_text(of));
}

void fault_bitcast_type(diagnostics *d, place at)
{
    diagnose(d, E213, at, "write `bitcast(u32, x)`", "the first argument of `bitcast` is a type");
}

void fault_bitcast_width(diagnostics *d, place at, dtype from, dtype to)
{
    diagnose(d, E213, at, "cast to a type of the same width first", "`bitcast` from `%s` to `%s` changes the width",
             type_text(from), type_text(to));
}

void fault_lane(diagnostics *d, place at)
{
    diagnose(d, E217, at, "write 0, 1, 2 or 3", "the lane of `philox` is a constant from 0 to 3");
}

void fault_ranks(diagnostics *d, place at, int a, int b)
{
    diagnose(d, E301, at, "add an axis with `[]`: `m[:][]` is a column, `m[][:]` a row",
             "operands have ranks %d and %d", a, b);
}

void fault_extents(diagnostics *d, place at, int axis, const char *words)
{
    diagnose(
        d, E302, at,
        "only unit axes broadcast, those made by `[]`, by a reduction or as a literal 1: give both the same extent",
        "extents differ on axis %d: %s", axis, words);
}

void fault_scalar_brackets(diagnostics *d, place at)
{
    diagnose(d, E307, at, "remove them", "brackets on a scalar");
}

void fault_axis(diagnostics *d, place at, int64_t axis, int rank)
{
    diagnose(d, E309, at, "axes count from 0; negative ones from the end", "axis %lld of rank %d", (long long)axis,
             rank);
}

void fault_transpose(diagnostics *d, place at, int rank)
{
    diagnose(d, E309, at, "add an axis with `[]`", "`transpose` needs at least two axes, this has %d", rank);
}

void fault_permute(diagnostics *d, place at, int rank)
{
    diagnose(d, E309, at, "name every axis once, counting from 0", "`permute` of rank %d needs an order of its %d axes",
             rank, rank);
}

void fault_reduce_scalar(diagnostics *d, place at, const char *name)
{
    diagnose(d, E313, at, "it folds the axes of a tile or tensor: remove it", "`%s` of a scalar", name);
}

void fault_one_axis(diagnostics *d, place at, const char *name)
{
    diagnose(d, E313, at, "name one axis: `axis = 1`", "`%s` needs one `axis =`", name);
}

void fault_reshape(diagnostics *d, place at, const char *from, const char *to)
{
    diagnose(d, E312, at, "the product of the extents stays the same",
             "`reshape` changes the number of elements: %s to %s", from, to);
}

void fault_extent(diagnostics *d, place at, int64_t extent, const char *advice)
{
    diagnose(d, E314, at, advice, "extent %lld", (long long)extent);
}

void fault_step(diagnostics *d, place at, bool slice)
{
    diagnose(d, E402, at, "a step is any integer but 0", slice ? "a slice with step 0" : "a loop with step 0");
}

void fault_not_callable(diagnostics *d, place at, const char *name)
{
    const char *habit = name ? habit_advice(name) : NULL; /* value_and_grad(f)(x) */
    diagnose(d, E212, at, habit ? habit : "call a function by its name", "this cannot be called");
}

void fault_argument_count(diagnostics *d, place at, const char *name, int least, int most, int got)
{
    const char *form = habit_form(name), *advice = form ? form : "see its parameters";
    if (least == most)
        diagnose(d, E213, at, advice, "`%s` takes %d argument%s, got %d", name, least, plural(least), got);
    else if (most < 0)
        diagnose(d, E213, at, advice, "`%s` takes at least %d argument%s, got %d", name, least, plural(least), got);
    else
        diagnose(d, E213, at, advice, "`%s` takes %d to %d arguments, got %d", name, least, most, got);
}

void fault_needs_function(diagnostics *d, place at, const char *name)
{
    diagnose(d, E212, at, "name a function", "`%s` needs the name of a function", name);
}

void fault_stands_for(diagnostics *d, place at, const char *function, const char *name)
{
    diagnose(d, E212, at, "name a scalar function of the file or an elementwise builtin of that arity",
             "`%s` cannot stand for `%s`", function, name);
}

void fault_assume(diagnostics *d, place at, const char *words)
{
    diagnose(d, E503, at, "call it with constants and arguments for which this holds",
             "`assume` on line %d is false: %s", at.line, words);
}

void fault_tile_axes(diagnostics *d, place at, int most)
{
    diagnose(d, E105, at, "use fewer axes", "a tile of more than %d axes", most);
}

void fault_tensor_axes(diagnostics *d, place at, int most)
{
    diagnose(d, E105, at, "reshape it first", "a tensor has at most %d axes", most);
}

void fault_dot_types(diagnostics *d, place at, dtype a, dtype b)
{
    diagnose(d, E311, at, "cast one of them: `T(p)`", "`dot` of `%s` and `%s`", type_text(a), type_text(b));
}

void fault_scalar_from(diagnostics *d, place at, int rank)
{
    diagnose(d, E305, at, "reduce it, or declare the variable with `let`", "a scalar from a tensor of rank %d", rank);
}

void fault_brackets(diagnostics *d, place at, const char *array, int rank, int given)
{
    const char *advice = "give one bracket for every axis: `[:]` for a whole axis", *axes = rank == 1 ? "axis" : "axes";
    if (array)
        diagnose(d, E306, at, advice, "array `%s` of %d %s is given %d bracket%s", array, rank, axes, given,
                 plural(given));
    else
        diagnose(d, E306, at, advice, "a tensor of %d %s is given %d bracket%s", rank, axes, given, plural(given));
}

void fault_no_effect(diagnostics *d, place at)
{
    diagnose(d, E108, at, "assign it or remove it", "this statement has no effect");
}

void fault_assigned(diagnostics *d, place at, const char *name)
{
    diagnose(d, E203, at, "declare a variable", "`%s` cannot be assigned", name);
}

void fault_written(diagnostics *d, place at, const char *array)
{
    diagnose(d, E204, at, "declare it `inout`", "write to the `in` array `%s`", array);
}

void fault_part_of_tile(diagnostics *d, place at, const char *name)
{
    diagnose(d, E208, at, "assign the whole tile, with `where` for the parts that stay",
             "part of the tile `%s` cannot be assigned", name);
}

void fault_part_of_tensor(diagnostics *d, place at, const char *name)
{
    diagnose(d, E208, at, "make a new tensor with `where`, `concat` or `pad`",
             "part of the tensor `%s` cannot be assigned", name);
}

void fault_tile_condition(diagnostics *d, place at, bool of_loop)
{
    diagnose(d, E210, at, of_loop ? "say `any(...)` or `all(...)`" : "say `any(...)`, `all(...)` or use `where`",
             "a tile is not a condition");
}

void fault_outside_loop(diagnostics *d, place at, const char *word)
{
    diagnose(d, E404, at, "`return` ends the program", "`%s` outside a loop", word);
}

void fault_while(diagnostics *d, place at, bool by_element)
{
    diagnose(d, E405, at, "count with `for`, or call a tile kernel that has the loop",
             by_element ? "a loop that each element leaves by itself has no place in a tensor function"
                        : "`while` has no place in a tensor function");
}

void fault_unknown(diagnostics *d, place at, bool call, const char *name, const char *advice)
{
    const char *usual = call ? "declare the function in this file" : "declare it first";
    diagnose(d, E201, at, advice ? advice : usual, "unknown %s `%s`", call ? "function" : "name", name);
}

void fault_called_here(diagnostics *d, place at, const char *name, const char *advice)
{
    diagnose(d, E212, at, advice, "`%s` cannot be called here", name);
}

void fault_gives_nothing(diagnostics *d, place at, const char *name)
{
    diagnose(d, E212, at, "write it as a statement", "`%s` gives no value", name);
}

void fault_no_place(diagnostics *d, place at, const char *name, bool validity)
{
    diagnose(d, E212, at,
             validity ? "tensors have no validity: use `where` and `pad`" : "write a tile kernel and call it",
             "`%s` has no place in a tensor function", name);
}

void fault_not_value(diagnostics *d, place at, const char *name)
{
    diagnose(d, E212, at, arena_print(d->memory, "call it: `%s(...)`", name), "`%s` is a function, not a value", name);
}

void fault_gradient(diagnostics *d, place at)
{
    diagnose(d, E212, at, "write `grad(f)(x, ...)` for a tensor function f of this file",
             "`grad` differentiates a tensor function");
}

void fault_named_argument(diagnostics *d, place at, const char *name, const char *argument, const char *advice)
{
    const char *habit = habit_argument(argument);
    diagnose(d, E213, at, habit ? habit : advice, "`%s` has no argument named `%s`", name, argument);
}

void fault_no_set(diagnostics *d, place at, const char *argument, const char *function)
{
    diagnose(d, E213, at, "give one value", "`%s` of `%s` is no set", argument, function);
}

void fault_not_given(diagnostics *d, place at, const char *argument, const char *function)
{
    diagnose(d, E213, at, "pass it by position or by name", "`%s` of `%s` is not given", argument, function);
}

void fault_not_constant(diagnostics *d, place at, const char *name, const char *advice)
{
    diagnose(d, E217, at, advice ? advice : "pass a number or a `const` name", "not a compile-time constant: `%s`",
             name);
}

void fault_depends(diagnostics *d, place at, const char *name, const char *advice)
{
    diagnose(d, E217, at, advice, "not a compile-time constant (depends on `%s`)", name);
}

void fault_circle(diagnostics *d, place at, const char *constant)
{
    diagnose(d, E217, at, "break the circle", "the constant `%s` depends on itself", constant);
}

void fault_flag(diagnostics *d, place at, const char *name, const char *function)
{
    diagnose(d, E217, at, "write `true` or `false`", "`%s` of `%s` is a constant", name, function);
}

void fault_traced(diagnostics *d, place at, const char *advice)
{
    diagnose(d, E217, at, advice, "a tensor's value is not known when the function is traced");
}

void fault_extent_missing(diagnostics *d, place at, const char *name)
{
    diagnose(d, E505, at, "give it by name, or give an array that has it", "the extent `%s` is not given", name);
}

void fault_no_default(diagnostics *d, place at, const char *kind, const char *name)
{
    diagnose(d, E505, at, arena_print(d->memory, "set it: %s=...", name), "the %s `%s` is not given and has no default",
             kind, name);
}
