"""The page's own words: what introduces the lab and its acts."""

from __future__ import annotations

TITLE = "The Parallelism Paradox"

HEADER = """
# The Parallelism Paradox

More GPUs can make every one of them do less. In two acts you meet the reason, communication that grows beside
computation that does not, and then design around it: tensor, pipeline and data parallelism for 1,024 GPUs. Four shorter
acts follow on what lies beneath. Predict first, then see, then work the number out.

*Two acts, about 40 minutes; four more of 5 to 10 minutes each.*
"""

READING = (
    (
        "A step on N GPUs",
        "T_step = T_compute + T_communication - T_overlap: what does not overlap is lost. The ratio of "
        "communication to computation says how bad it can get",
    ),
    (
        "Adding gradients up in a ring",
        "Thakur, Rabenseifner and Gropp 2005, section 4; nccl-tests, doc/PERFORMANCE.md, for the factor 2 (N - 1) / N",
    ),
    ("Why models are spread at all", "Rajbhandari et al., ZeRO, arXiv 1910.02054, section 3: where the memory goes"),
    ("Buckets and overlap", "Li et al., PyTorch Distributed, arXiv 2006.15704, section 3.2"),
    (
        "Three dimensions together",
        "Narayanan et al., arXiv 2104.04473, sections 2 and 3: tensor parallelism in a node, pipelines across nodes, "
        "the bubble",
    ),
    ("What tensor parallelism leaves of activations", "Korthikanti et al., arXiv 2205.05198, section 4"),
)

CONTEXT = "Context of this session (Acts III to VI take their model and GPUs from it)"

ACT_ONE = """
## Act I. The data-parallel wall

*Calibration, 12 to 15 minutes*
"""

MESSAGE_ONE = (
    "the lead of training infrastructure",
    "Our 7B model trains with plain data parallelism. On 8 GPUs I measured 52 % MFU, on 64 it was 38 %, on 512 it is "
    "19 %. Same model, same batch per GPU; all we did was add GPUs. That is 40,000 dollars a day for GPUs that wait. "
    "What exactly makes MFU fall?",
)

FRAMING_ONE = """
Each GPU holds the whole model, runs its own share of the batch, and then all of them add their gradients up: an
**all-reduce**, without which the replicas would drift apart. What it costs depends on how long it takes *beside the
computation*:

* communication much shorter than computation: GPUs multiply matrices nearly all the time;
* communication as long as computation: they wait about half of it.

Nothing of this is a fault in somebody's program. Before you see a number, say what you expect.
"""

EXPLORE_ONE = """
### Move the sliders

The formula works out one step of your job. Watch what the all-reduce costs beside the computation, and where MFU goes.
"""

REFLECT_ONE = """
### Looking back on Act I

If the bytes cannot be avoided, can they be hidden?
"""

ACT_TWO = """
## Act II. A design in three dimensions

*Design, 20 to 25 minutes*
"""

MESSAGE_TWO = (
    "the architect of the platform",
    "We have to train GPT-3, 175 billion parameters. With half-precision weights, optimizer states in fp32 and "
    "activations I count about 10 bytes per parameter, 1.75 TB; one H100 has 80 GB. There are 1,024 of them in 128 "
    "nodes. Find the TP x PP x DP with the highest MFU that fits into the memory of every GPU and keeps the pipeline's "
    "bubble at 10 % or less.",
)

FRAMING_TWO = """
Where one GPU cannot hold the model, replicas do not help. Three ways to cut it up combine:

* **Tensor parallelism (TP)** cuts every matrix. GPUs of a group sum their parts several times in each layer, so the
  group wants the fastest network there is: that of one node.
* **Pipeline parallelism (PP)** gives each group of GPUs some of the layers. Little is sent, but stages wait while a
  pipeline fills and drains: the **bubble**, the smaller the more micro-batches *m* follow each other.
* **Data parallelism (DP)** repeats the whole and shares the batch: DP = 1,024 / (TP x PP), a whole number.
"""

EXPLORE_TWO = """
### Configure

Choose TP, PP and the micro-batches; DP follows. The rules are those of the message: 80 GB, 10 %, TP within a node.
"""

REFLECT_TWO = """
### Looking back on Act II

8 turned out to be a boundary for TP. Why there?
"""

ACT_THREE = """
## Act III. The roof of a layer

*5 to 10 minutes*

A GPU multiplies, reads memory and sends, all at once; the slowest of the three decides. How much it multiplies for each
byte (its *intensity*) says which that is: under the ridge of the roof memory or network decide, beyond it the units. A
linear layer can be cut along its input and along its output; each cut makes tiles smaller and sums longer.
"""

ACT_FOUR = """
## Act IV. What is sent, and over which hop

*5 to 10 minutes*

Data parallelism sends gradients, FSDP weights as well, tensor parallelism activations inside every layer, a pipeline
activations at every boundary. P is the weights in bytes, N the GPUs, L the layers, B sequences of S
tokens, H the width.
"""

ACT_FIVE = """
## Act V. Strong and weak scaling

*5 to 10 minutes*

Strong scaling keeps the batch and adds GPUs; weak scaling lets the batch grow with them. Efficiency is the speedup over
the growth in GPUs. The numbers are the planner's: the best plan at every count, beside data parallelism alone.
"""

ACT_SIX = """
## Act VI. Reading a curve of nccl-tests

*5 to 10 minutes*

A datasheet says what a link could do, `all_reduce_perf` what a group of GPUs does with it. It prints two bandwidths for
each size; only one of them compares with the datasheet.
"""

PASTE = "Or paste the output of an nccl-tests program of your own (text, at most 200,000 characters; it stays here)"

LEDGER = """
## Ledger

Everything that you lock or save is kept here while the page is open. Take it with you: nothing is kept after you leave,
unless your instructor gathers answers.
"""

GATHERED = "Your instructor gathers answers: each entry is also appended to a sheet as you make it."

TAKEAWAYS = """
## To take away

1. **The paradox is a ratio.** What a GPU sends to add gradients up settles at twice the gradients and does not grow
   with the cluster; the road it takes gets slower beyond a node while the computation stays the same. What is left to
   do is to hide it, shorten it, or give each GPU more to compute.
2. **TP ends where the fast network ends.** It sums several times in every layer, so its cost follows the bandwidth;
   pipelines send one boundary's activations per micro-batch and may cross nodes, at the price of a bubble.
3. **A formula is as good as its constants.** Forgotten tokens, a peak for sparse matrices, a duplex rate: each changed
   a conclusion of this lab. Feed formulas with measured numbers and compare them with measured runs.

**Before this lab:** networks inside and between nodes. **After it:** how collectives work, rings against trees, and
what a scheduler makes of all this.
"""
