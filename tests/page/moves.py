"""One visitor who opens the Plan room and moves its sliders, in a real Chromium: `python -m tests.page.moves`.

GPT-3 on 1,024 GPUs, each value asked for the first time. Printed are the times from the change to the answer as it is
painted, and to its proof, and what the server took of the processor for both: on a busy machine the times say how busy
it is, the processor's seconds what an idle one would do.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

from tests.browser import chromium_here
from tests.page.conftest import Served, ended, started
from tests.page.visitors import PATIENCE_MS, cpu_of

MOVES: Sequence[tuple[str, int]] = (
    *(("global_batch", batch) for batch in (512, 640, 768, 896, 1024, 1152, 1280, 1792, 1920, 2048, 3072, 1536)),
    *(("seq_len", tokens) for tokens in (1024, 3072, 4096, 2048)),
    *(("gpus", gpus) for gpus in (512, 768, 1280, 1536, 2048)),
)
BACK = {("global_batch", 1536), ("seq_len", 2048)}  # to the question with which the room opens: asked before
MOVED = """([name, value]) => new Promise((done) => {
    const answer = document.getElementById("answer");
    const field = document.getElementById("in-" + name);
    const start = performance.now();
    const before = answer.dataset.answered;
    let shown = 0;
    const seen = new MutationObserver(() => {
        if (!shown && answer.dataset.answered !== before) {
            shown = -1;
            requestAnimationFrame(() => setTimeout(() => { shown = performance.now() - start; look(); }));
        }
        look();
    });
    const look = () => {
        if (shown <= 0 || answer.hasAttribute("data-pending")) return;
        seen.disconnect();
        done([shown / 1000, (performance.now() - start) / 1000]);
    };
    seen.observe(answer, {attributes: true});
    field.value = value;
    field.dispatchEvent(new Event("change", {bubbles: true}));
})"""


def opened(page: Any, served: Served) -> float:
    """Seconds from the address to the first answer on the screen."""
    start = time.perf_counter()
    page.goto(served.room(), wait_until="commit")
    page.locator("#answer .headline").wait_for()
    return time.perf_counter() - start


def main() -> None:
    """Open the room, move every slider, and say how long each took."""
    served = started()
    try:
        with chromium_here() as browser:
            page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
            page.set_default_timeout(PATIENCE_MS)
            print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
            print(f"opened: first answer on the screen after {opened(page, served):.2f} s", flush=True)
            page.wait_for_selector("#answer:not([data-pending])")
            before, taken = cpu_of(served.process.pid), []
            for move in MOVES:
                times = page.evaluate(MOVED, list(move))
                if move not in BACK:
                    taken.append(times)
            cpu = (cpu_of(served.process.pid) - before) / len(taken)
    finally:
        ended(served)
    answers, proofs = (sorted(times) for times in zip(*taken, strict=True))
    print(
        f"{len(taken)} values never asked before: answer after {statistics.median(answers):.2f} s in the median, "
        f"{answers[-1]:.2f} s at most; proven after {statistics.median(proofs):.2f} s, {proofs[-1]:.2f} s at most; "
        f"{cpu:.2f} s of the server's processor each"
    )


if __name__ == "__main__":
    main()
