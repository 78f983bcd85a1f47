"""The performance model of ConvStencil says what the paper's tables and text say."""

from __future__ import annotations

import pytest

from tests.papers.convstencil import model as paper
from tetris_sim.gpu_kernels.tensor_cores import dual_tessellation as model
from tetris_sim.model.stencils.catalogue import named_stencil

# Table 3: kernel, im2row, stencil2row, memory saving in percent.
TABLE_3 = [
    ("heat-2d", 5, 1.5, 70.00),
    ("box-2d9p", 9, 1.5, 83.33),
    ("star-2d9p", 9, 1.67, 81.49),
    ("box-2d25p", 25, 1.67, 93.33),
    ("star-2d13p", 13, 1.75, 86.54),
    ("box-2d49p", 49, 1.75, 96.43),
]


@pytest.mark.parametrize(("name", "im2row", "stencil2row", "saving"), TABLE_3)
def test_memory_factors_are_those_of_table_3(
    name: str, im2row: float, stencil2row: float, saving: float
) -> None:
    stencil = named_stencil(name).stencil
    n = 2 * stencil.radius + 1
    assert paper.im2row_factor(stencil.n_points) == im2row
    assert model.stencil2row_factor(n) == pytest.approx(stencil2row, abs=0.005)
    assert 100 * paper.memory_saving(stencil.n_points, n) == pytest.approx(saving, abs=0.011)


@pytest.mark.parametrize("n", [3, 5, 7])
def test_the_saving_of_a_box_is_equation_11(n: int) -> None:
    assert 1 - paper.memory_saving(n**2, n) == pytest.approx(2 / ((n + 1) * n))


def test_a_dual_tessellation_of_box_2d49p_takes_26_products() -> None:
    assert paper.products_per_tessellation(7) == 26
    assert paper.convstencil_products(10, 128, 7) == 10 * 2 * 26
    assert paper.convstencil_products(10, 129, 7) == 10 * 3 * 26


def test_a_product_takes_16_cycles_of_an_a100() -> None:
    seconds = paper.convstencil_compute_time(model.A100, 10240, 10240, 7)
    assert seconds == pytest.approx(10240 * 160 * 26 * 16 / (1.41e9 * 432))
    peak = 2 * 8 * 8 * 4 / 16 * 1.41e9 * 432
    assert peak == pytest.approx(19.5e12, rel=0.01)  # section 5.1


def test_the_h200_multiplies_as_fast_as_measured() -> None:
    machine = model.H200
    flops = 2 * 8 * 8 * 4 / machine.cycles_per_product * machine.frequency * machine.n_tensor_cores
    assert flops == pytest.approx(65.5e12, rel=0.03)


@pytest.mark.parametrize("n", [3, 5, 7])
def test_convstencil_beats_convolution_by_im2row(n: int) -> None:
    ours = paper.convstencil_compute_time(model.A100, 10240, 10240, n)
    theirs = paper.gemm_compute_time(model.A100, 10240, 10240, n)
    assert ours < theirs
    assert theirs / ours == pytest.approx((n + 1) / 2, rel=0.02)


def test_memory_time_is_the_slower_memory() -> None:
    machine = model.TensorMachine(1e9, 1, 1, global_bandwidth=10, shared_bandwidth=100)
    amounts = {"read": 10.0, "written": 10.0, "shared_written": 100.0, "shared_read": 50.0}
    assert model.memory_time(machine, **amounts) == 2.0
    assert model.memory_time(machine, **{**amounts, "shared_read": 300.0}) == 4.0


def test_the_total_is_the_slower_of_computing_and_memory() -> None:
    assert model.total_time(2.0, 3.0) == 3.0
    compute = paper.convstencil_compute_time(model.H200, 4096, 4096, 7)
    memory = paper.convstencil_memory_time(model.H200, 4096, 4096, 7)
    assert paper.convstencil_time(model.H200, 4096, 4096, 7) == max(compute, memory)


def test_seven_of_eight_columns_are_used_at_width_7() -> None:
    assert paper.column_utilisation(1) == 0.125
    assert paper.column_utilisation(7) == 0.875


@pytest.mark.parametrize(("name", "steps"), [("box-2d9p", 3), ("box-2d49p", 1)])
def test_a_rate_is_predicted_by_the_equations_for_kernels_up_to_seven_points_wide(
    name: str, steps: int
) -> None:
    seconds = paper.convstencil_time(model.H200, 4096, 8192, 7)
    stencil = named_stencil(name).stencil
    assert model.predict_rate(model.H200, stencil, steps, (4096, 8192)) == pytest.approx(
        steps * 4096 * 8192 / seconds
    )


def test_a_kernel_of_one_row_and_a_sum_of_planes_are_counted_by_hand() -> None:
    slow = model.TensorMachine(1.0, 1, 1.0, 1e30, 1e30)  # a product per second
    one = model.predict_rate(slow, named_stencil("heat-1d").stencil, 3, (640,))
    assert one == pytest.approx(
        640 * 3 / (10 * 2 * 2)
    )  # 10 tiles, 7 places of A in products of 4, the same of B
    three = model.predict_rate(slow, named_stencil("box-3d27p").stencil, 1, (5, 6, 64))
    assert three == pytest.approx(
        5 * 6 * 64 / (5 * 6 * 2 * 3 * 2 * 3)
    )  # 2 tiles a row, 3 planes of 9 taps
    wide = model.predict_rate(slow, named_stencil("heat-1d").stencil, 4, (800,))
    assert wide == pytest.approx(800 * 4 / (10 * 2 * 3 * 2))  # 10 columns of weights: two products


def test_memory_of_unknown_speed_limits_nothing() -> None:
    known = model.tensor_machine("sm_90", multiprocessors=132, clock=1.98e9, bandwidth=1e9)
    unknown = model.tensor_machine("sm_90", multiprocessors=132, clock=1.98e9, bandwidth=None)
    assert known is not None
    assert unknown is not None
    stencil = named_stencil("heat-2d").stencil
    assert model.predict_rate(known, stencil, 1, (512, 512)) == pytest.approx(1e9 / 16)
    assert model.predict_rate(unknown, stencil, 1, (512, 512)) > 1e11


@pytest.mark.parametrize(
    ("architecture", "multiprocessors", "clock"), [("sm_89", 128, 2e9), ("sm_90", 0, 0.0)]
)
def test_nothing_is_predicted_for_an_unknown_gpu(
    architecture: str, multiprocessors: int, clock: float
) -> None:
    assert (
        model.tensor_machine(
            architecture, multiprocessors=multiprocessors, clock=clock, bandwidth=None
        )
        is None
    )
