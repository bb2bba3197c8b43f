import pytest
import torch
import torch.nn.functional as F

from squid.nn.memory import MemoryMatrix, MemoryQueue, Shrinkage, gumbel_shrink, hard_shrink, read

AUTHORS = Shrinkage(topk="authors")
CASES = ["random", "k1", "k2", "k_eq_m", "all_ties", "tie_at_k", "saturated"]


@pytest.mark.parametrize("name", CASES)
def test_golden_gumbel_shrinkage(golden, name):
    case = {k.removeprefix(f"{name}/"): v for k, v in golden("gumbel_shrinkage").items()}
    logits = case["logits"].requires_grad_()
    weights = gumbel_shrink(logits, int(case["k"]), "authors")
    torch.testing.assert_close(weights, case["weights"], rtol=1e-4, atol=1e-6)
    assert torch.equal((weights > 1e-8).sum(-1), case["n_nonzero"])
    (grad,) = torch.autograd.grad(weights, logits, case["upstream"])
    torch.testing.assert_close(grad, case["grad_logits"], rtol=1e-4, atol=1e-6)


def test_golden_hard_shrink(golden):
    case = golden("gumbel_shrinkage")
    out = hard_shrink(case["hard_shrink/x"], float(case["hard_shrink/lambda"]))
    torch.testing.assert_close(out, case["hard_shrink/out"])


def test_the_paper_keeps_k_and_the_authors_one_less():
    logits = torch.randn(5, 20)
    paper, authors = gumbel_shrink(logits, 4, "paper"), gumbel_shrink(logits, 4, "authors")
    assert (paper != 0).sum(-1).tolist() == [4] * 5
    assert (authors != 0).sum(-1).tolist() == [3] * 5
    torch.testing.assert_close(paper.sum(-1), torch.ones(5))


def test_gumbel_shrinkage_learns_like_a_softmax():
    logits = torch.randn(3, 9, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(3, 9, dtype=torch.float64)
    (ours,) = torch.autograd.grad(gumbel_shrink(logits, 2), logits, upstream)
    (soft,) = torch.autograd.grad(logits.softmax(-1), logits, upstream)
    torch.testing.assert_close(ours, soft)


def test_equation_1_as_written_shrinks_similarities():
    w = torch.rand(3, 9)
    weights = Shrinkage(of="similarity", k=2)(w)
    assert (weights > 1e-6).sum(-1).tolist() == [2] * 3
    torch.testing.assert_close(weights.max(-1).values, w.max(-1).values)


def test_no_shrinkage_combines_all_slots():
    w = torch.randn(3, 9)
    torch.testing.assert_close(Shrinkage("none")(w), w.softmax(-1))
    torch.testing.assert_close(Shrinkage("none", of="similarity")(w), w)


def test_hard_shrinkage_of_the_softmax_keeps_what_is_above_the_threshold():
    w = torch.randn(4, 9)
    weights = Shrinkage("hard", threshold=0.1)(w)
    assert torch.equal(weights > 0, w.softmax(-1) > 0.1)


@pytest.mark.parametrize("name", ["full", "small"])
def test_golden_queue_read(golden, name):
    case = golden("memory_queue")
    query = case[f"{name}/query"][:, None].requires_grad_()  # (b, 1, d)
    out = read(query, case[f"{name}/memory"][None], AUTHORS)
    torch.testing.assert_close(out[:, 0], case[f"{name}/out"], rtol=1e-4, atol=1e-5)
    (grad,) = torch.autograd.grad(out[:, 0], query, case[f"{name}/upstream"])
    torch.testing.assert_close(grad[:, 0], case[f"{name}/grad_query"], rtol=1e-4, atol=1e-5)


def test_golden_hard_read(golden):
    case = golden("memory_queue")
    shrink = Shrinkage("hard", of="similarity", threshold=float(case["hard/lambda"]))
    out = read(case["hard/query"][:, None], case["hard/memory"][None], shrink)
    torch.testing.assert_close(out[:, 0], case["hard/out"], rtol=1e-4, atol=1e-5)


def test_golden_fifo(golden):
    case = golden("memory_queue")
    queue = MemoryQueue(1, *case["fifo/initial"].shape, AUTHORS)
    queue.slots.copy_(case["fifo/initial"])
    for i in range(len(case["fifo/sizes"])):
        queue(torch.randn(3, 1, 12))  # a pass that never gets committed
        queue(case[f"fifo/batch{i}"][:, None])
        queue.commit()
        assert torch.equal(queue.slots[0], case[f"fifo/memory{i}"])
        assert queue.pointer == case[f"fifo/ptr{i}"].item()


def test_of_more_tokens_than_slots_the_last_stay():
    queue = MemoryQueue(2, 3, 4, Shrinkage(k=2))
    queue.pointer.fill_(2)
    tokens = torch.arange(7.0)[:, None, None].expand(7, 2, 4)
    queue(tokens)
    queue.commit()
    # Token i belongs in slot (2 + i) % 3; the last three are 4, 5, 6.
    assert queue.slots[1, :, 0].tolist() == [4, 5, 6]
    assert queue.pointer == (2 + 7) % 3


def test_evaluation_stores_nothing():
    queue = MemoryQueue(1, 5, 4, AUTHORS).eval()
    queue(torch.randn(2, 1, 4))
    assert queue.pending is None


def test_queue_and_pointer_survive_a_checkpoint():
    first, second = (MemoryQueue(2, 5, 4, AUTHORS) for _ in range(2))
    first(torch.randn(3, 2, 4))
    first.commit()
    second.load_state_dict(first.state_dict())
    assert second.pointer == 3
    assert torch.equal(second.slots, first.slots)


def test_ranks_store_all_their_tokens():
    class Twins:
        alone = False
        size = 2

        def mean(self, x):
            return x

        def gather(self, x):
            return torch.cat((x, x + 100))

    queue = MemoryQueue(1, 10, 4, AUTHORS)
    queue.ranks = Twins()
    queue(torch.zeros(2, 1, 4))
    queue.commit()
    assert queue.slots[0, :4, 0].tolist() == [0, 0, 100, 100]
    assert queue.pointer == 4


def test_a_region_serves_its_position_only():
    matrix = MemoryMatrix(3, 6, 4, Shrinkage())
    tokens = torch.randn(2, 3, 4)
    before = matrix(tokens)
    with torch.no_grad():
        matrix.slots[1] += 1
    changed = (matrix(tokens) != before).any(-1)
    assert changed.tolist() == [[False, True, False]] * 2


def test_a_single_region_serves_all_positions():
    matrix = MemoryMatrix(1, 6, 4, Shrinkage())
    tokens = torch.randn(2, 3, 4)
    one_by_one = torch.stack([matrix(tokens[:, i : i + 1])[:, 0] for i in range(3)], 1)
    torch.testing.assert_close(matrix(tokens), one_by_one)


def test_reads_are_float32_under_autocast_and_float64_stays():
    matrix = MemoryMatrix(1, 50, 64, Shrinkage())
    tokens = torch.randn(4, 1, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = matrix(tokens)
    assert torch.equal(mixed, matrix(tokens))
    assert matrix.double()(tokens.double()).dtype == torch.float64


def test_matrix_learns_and_queue_does_not():
    assert [name for name, _ in MemoryMatrix(1, 3, 4, AUTHORS).named_parameters()] == ["slots"]
    assert not list(MemoryQueue(1, 3, 4, AUTHORS).parameters())
    matrix = MemoryMatrix(1, 9, 4, AUTHORS)
    matrix(F.one_hot(torch.arange(4)).float()[:, None]).sum().backward()
    assert matrix.slots.grad is not None
    assert (matrix.slots.grad != 0).any(-1).all()


def test_distance_finds_the_nearest_slot_and_a_product_the_longest():
    slots = torch.tensor([[[1.0, 0.0], [10.0, 10.0]]])  # (1, 2, 2)
    token = torch.tensor([[[1.0, 0.2]]])  # (1, 1, 2)
    one = Shrinkage(k=1)
    assert torch.equal(read(token, slots, one, "distance")[0, 0], slots[0, 0])
    assert torch.equal(read(token, slots, one, "dot")[0, 0], slots[0, 1])


def test_a_cosine_finds_the_slot_of_the_same_direction():
    slots = torch.tensor([[[1.0, 0.2], [9.0, 9.0], [0.0, 3.0]]])
    one = Shrinkage(k=1)
    token = torch.tensor([[[5.0, 1.0]]])
    assert torch.equal(read(token, slots, one, "cosine")[0, 0], slots[0, 0])
    assert torch.equal(read(7 * token, slots, one, "cosine")[0, 0], slots[0, 0])
    assert torch.equal(read(token, slots, one, "dot")[0, 0], slots[0, 1])


@pytest.mark.parametrize("kind", [MemoryQueue, MemoryMatrix])
@pytest.mark.parametrize("similarity", ["dot", "cosine", "distance"])
@pytest.mark.parametrize("regions", [1, 3])
def test_weights_are_those_of_the_read(kind, similarity, regions):
    memory = kind(regions, 7, 4, Shrinkage(k=2), similarity).eval()
    tokens = torch.randn(2, 3, 4)
    weights = memory.weights(tokens)  # (b*q, r, n)
    assert weights.shape == (6 // regions, regions, 7)
    found = torch.einsum("brn,rnd->brd", weights, memory.slots)
    if regions == 3:
        assert torch.equal(found, memory(tokens))
    else:
        assert torch.equal(found.view(2, 3, 4), memory(tokens))


def test_weights_depend_on_the_similarity_and_keep_float32_under_autocast():
    tokens = torch.randn(5, 1, 8)
    memories = [MemoryMatrix(1, 20, 8, Shrinkage(k=1), s) for s in ("dot", "distance", "cosine")]
    for memory in memories:
        memory.slots.data.copy_(torch.linspace(1, 9, 20)[:, None] * memories[0].slots.data)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = [memory.weights(tokens.bfloat16()) for memory in memories]
    chosen = {tuple(weights.argmax(-1).flatten().tolist()) for weights in mixed}
    assert len(chosen) == 3
    assert {weights.dtype for weights in mixed} == {torch.float32}


def test_weights_store_nothing():
    queue = MemoryQueue(1, 5, 4, AUTHORS).train()
    queue.weights(torch.randn(2, 1, 4))
    assert queue.pending is None


def test_a_low_temperature_reads_one_slot_and_a_high_one_all():
    slots = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    token = torch.tensor([[[1.0, 0.0]]])
    cold, hot = (
        read(token, slots, Shrinkage(k=2, temperature=t), "cosine")[0, 0] for t in (0.01, 100.0)
    )
    torch.testing.assert_close(cold, slots[0, 0])
    torch.testing.assert_close(hot, torch.tensor([0.5, 0.5]), rtol=0.02, atol=0)
