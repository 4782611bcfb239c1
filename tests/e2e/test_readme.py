"""Every block of the README, literally and in order, on a fresh installation: none leads into a wall."""

from pathlib import Path

from bench.newcomer import JOBS, Block, fresh_installation, readme_blocks, run_readme


def test_every_block_of_the_readme_works_in_order_and_every_model_answers_after_it(tmp_path: Path) -> None:
    blocks = readme_blocks()
    assert {"upstream add", "budgets create", "routes create", "apply -f"} <= {
        part
        for part in ("upstream add", "budgets create", "routes create", "apply -f")
        for b in blocks
        if part in b.text
    }
    with fresh_installation(tmp_path) as newcomer:
        failed = [outcome for outcome in run_readme(newcomer, blocks) if outcome.status]
        assert not failed, "\n".join(f"{one.status}: {one.block.text}\n{one.output}" for one in failed)
        for commands in JOBS.values():
            for command in commands:
                outcome = newcomer.run(Block("sh", command))
                assert outcome.status == 0, outcome.output
