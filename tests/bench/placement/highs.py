# SPDX-License-Identifier: Apache-2.0
"""HiGHS solves whole-number programs. One thread and a fixed seed: the same program gives the same answer."""

from __future__ import annotations

from typing import Any

import highspy

from tests.bench.placement.whole_program import Answer, WholeProgram

_SOLVED = "Optimal"


def maximise(program: WholeProgram, seconds: float) -> Answer | None:
    """The values that gain most, or the best found in ``seconds``; None when none were found in time."""
    if not program.gains:
        return Answer((), 0.0, 0.0, proved=True)
    library: Any = highspy  # its annotations are not complete
    solver = library.Highs()
    for option, value in (
        ("output_flag", False), ("threads", 1), ("random_seed", 0), ("time_limit", seconds), ("mip_rel_gap", 0.0),
    ):  # fmt: skip
        solver.setOptionValue(option, value)
    solver.passModel(model_of(library, program))
    solver.run()
    info = solver.getInfo()
    values = solver.getSolution().col_value
    if info.primal_solution_status != int(library.SolutionStatus.kSolutionStatusFeasible) or not values:
        return None
    proved = solver.modelStatusToString(solver.getModelStatus()) == _SOLVED
    bound = info.objective_function_value if proved else info.mip_dual_bound
    return Answer(tuple(round(value) for value in values), info.objective_function_value, bound, proved)


def model_of(highspy: Any, program: WholeProgram) -> Any:
    """The program as the library takes it."""
    starts, columns, coefficients = [0], list[int](), list[float]()
    for row in program.rows:
        columns += [column for column, _ in row.terms]
        coefficients += [coefficient for _, coefficient in row.terms]
        starts.append(len(columns))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.gains), len(program.rows)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_, model.col_lower_ = program.gains, [0.0] * len(program.gains)
    model.col_upper_ = [float(upper) for upper in program.uppers]
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(program.gains)
    model.row_lower_, model.row_upper_ = [row.low for row in program.rows], [row.high for row in program.rows]
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = starts, columns, coefficients
    return model
