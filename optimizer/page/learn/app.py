"""The lab as a marimo app: cells only place what the modules beside this one work out."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="The Parallelism Paradox", html_head_file="head.html")

with app.setup:
    from typing import Any

    import marimo as mo

    from optimizer.page.learn import (
        charts_five,
        charts_four,
        charts_one,
        charts_priced,
        charts_six,
        charts_three,
        charts_two,
        markup,
        measured,
        priced,
        questions_one,
        questions_two,
        texts,
        view,
    )
    from optimizer.page.learn.act_four import Volumes
    from optimizer.page.learn.act_one import INFINIBAND, LAB, NVLINK, DataParallel, corrected
    from optimizer.page.learn.act_six import LARGEST, Bottleneck, read_curve
    from optimizer.page.learn.act_three import Sheet
    from optimizer.page.learn.act_two import DEGREES, Design
    from optimizer.page.learn.contexts import CONTEXTS, SMALL
    from optimizer.page.learn.desk import Desk, new_key
    from optimizer.page.learn.footer import footer
    from optimizer.page.learn.ledger import Visitor


@app.cell
def _() -> tuple[Any, ...]:
    _nothing: Any = ()
    _silence: Any = ""
    get_one, set_one = mo.state(_silence, allow_self_loops=True)
    get_reflect_one, set_reflect_one = mo.state(_silence, allow_self_loops=True)
    get_two, set_two = mo.state(_silence, allow_self_loops=True)
    get_reflect_two, set_reflect_two = mo.state(_silence, allow_self_loops=True)
    get_three, set_three = mo.state(_silence, allow_self_loops=True)
    get_four, set_four = mo.state(_silence, allow_self_loops=True)
    get_five, set_five = mo.state(_silence, allow_self_loops=True)
    get_six, set_six = mo.state(_silence, allow_self_loops=True)
    get_entries, set_entries = mo.state(_nothing)
    get_designs, set_designs = mo.state(_nothing)
    get_trouble, set_trouble = mo.state(_silence)
    desk = Desk(
        visitor=Visitor(key=new_key()),
        answers={
            "act-1": set_one,
            "act-1-reflection": set_reflect_one,
            "act-2": set_two,
            "act-2-reflection": set_reflect_two,
            "act-3": set_three,
            "act-4": set_four,
            "act-5": set_five,
            "act-6": set_six,
        },
        entries=set_entries,
        designs=set_designs,
        trouble=set_trouble,
        sheet=view.sheet(),
    )
    return (
        desk,
        get_designs,
        get_entries,
        get_five,
        get_four,
        get_one,
        get_reflect_one,
        get_reflect_two,
        get_six,
        get_three,
        get_trouble,
        get_two,
    )


@app.cell
def _() -> None:
    mo.vstack(
        [view.look(), mo.md(texts.HEADER), mo.md("## Read first"), view.html(markup.listed(texts.READING, "reading"))]
    )
    return


@app.cell
def _() -> tuple[Any, ...]:
    context = mo.ui.radio(
        options={found.title: name for name, found in CONTEXTS.items()},
        value=CONTEXTS[SMALL].title,
        label=texts.CONTEXT,
    )
    student = mo.ui.text(label="Name or group, for the ledger (may stay empty)", max_length=80)
    mo.vstack([context, student])
    return context, student


@app.cell
def _(context: Any, desk: Any, student: Any) -> None:
    desk.visitor = Visitor(key=desk.visitor.key, name=student.value, context=context.value)
    return


@app.cell
def _(desk: Any, get_one: Any) -> tuple[Any, ...]:
    ask_one = questions_one.prediction()
    form_one = view.form(ask_one, desk)
    mo.vstack(
        [
            mo.md(texts.ACT_ONE),
            view.html(markup.message(*texts.MESSAGE_ONE)),
            mo.md(texts.FRAMING_ONE),
            view.asked(ask_one, get_one(), form_one),
        ]
    )
    return ask_one, form_one


@app.cell
def _() -> tuple[Any, ...]:
    billions = mo.ui.slider(1, 175, 1, value=7, label="Model [billions of parameters]", include_input=True)
    gpus = mo.ui.slider(8, 1024, 8, value=8, label="GPUs (replicas)", include_input=True)
    batch = mo.ui.slider(8, 128, 8, value=32, label="Batch of a GPU [sequences]", include_input=True)
    fabric = mo.ui.dropdown(
        {"NVLink (in a node of 8)": NVLINK, "InfiniBand (across nodes)": INFINIBAND},
        value="NVLink (in a node of 8)",
        label="Interconnect",
    )
    priced_one = mo.ui.switch(label="Price the same with the calibrated model, beside measured runs")
    constants = mo.ui.dropdown(
        {"the document's": LAB, "the datasheets'": corrected()}, value="the document's", label="Constants"
    )
    return batch, billions, constants, fabric, gpus, priced_one


@app.cell
def _(
    ask_one: Any,
    batch: Any,
    billions: Any,
    constants: Any,
    fabric: Any,
    get_one: Any,
    gpus: Any,
    priced_one: Any,
) -> tuple[Any, ...]:
    _model = priced.nearest(billions.value)
    _points = priced.data_parallel(_model, batch.value) if priced_one.value else ()

    step = DataParallel(
        billions=billions.value, gpus=gpus.value, batch=batch.value, fabric=fabric.value, constants=constants.value
    )
    view.waiting(ask_one, get_one()) or mo.vstack(
        [
            mo.md(texts.EXPLORE_ONE),
            view.controls(billions, gpus, batch, fabric, constants),
            view.html(charts_one.told_of_fabric(step) + markup.figures(charts_one.figures(step))),
            *view.chart(charts_one.mfu_chart(step, charts_priced.shares(_points))),
            priced_one,
            *view.when(
                priced_one.value,
                lambda: (
                    view.html(charts_priced.data_parallel_words(_model, _points)),
                    *view.chart(charts_priced.data_parallel_chart(measured.data_parallel_runs())),
                ),
            ),
            mo.md("### Act I worked out with your values"),
            view.html(markup.worked(charts_one.equations(step), "Act I worked out")),
        ]
    )
    return (step,)


@app.cell
def _(ask_one: Any, get_one: Any) -> None:
    view.reveal(ask_one, get_one())
    return


@app.cell
def _(desk: Any, get_one: Any, get_reflect_one: Any) -> tuple[Any, ...]:
    _ask = questions_one.reflection()
    form_reflect_one = view.form(_ask, desk)
    mo.vstack(
        [
            mo.md("### Where the document behind Act I slips"),
            view.html(markup.listed(questions_one.slips(), "act1-slips")),
            mo.md(texts.REFLECT_ONE),
            view.asked(_ask, get_reflect_one(), form_reflect_one),
            view.reveal(_ask, get_reflect_one()),
        ]
    ) if get_one() else view.html("")
    return (form_reflect_one,)


@app.cell
def _(desk: Any, get_two: Any) -> tuple[Any, ...]:
    ask_two = questions_two.prediction()
    form_two = view.form(ask_two, desk)
    mo.vstack(
        [
            mo.md(texts.ACT_TWO),
            view.html(markup.message(*texts.MESSAGE_TWO)),
            mo.md(texts.FRAMING_TWO),
            view.asked(ask_two, get_two(), form_two),
        ]
    )
    return ask_two, form_two


@app.cell
def _(desk: Any) -> tuple[Any, ...]:
    tp = mo.ui.slider(1, DEGREES, 1, value=8, label="TP (tensor parallel)", include_input=True)
    pp = mo.ui.slider(1, DEGREES, 1, value=4, label="PP (pipeline stages)", include_input=True)
    priced_two = mo.ui.switch(label="Price this design with the calibrated model, beside measured runs")
    microbatches = mo.ui.slider(1, DEGREES, 1, value=8, label="m (micro-batches)", include_input=True)
    save = view.saving(desk, tp, pp, microbatches)
    return microbatches, pp, priced_two, save, tp


@app.cell
def _(microbatches: Any, pp: Any, tp: Any) -> tuple[Any, ...]:
    design = Design(tp=tp.value, pp=pp.value, microbatches=microbatches.value)
    return (design,)


@app.cell
def _(ask_two: Any, design: Any, get_two: Any, microbatches: Any, pp: Any, priced_two: Any, save: Any, tp: Any) -> None:
    view.waiting(ask_two, get_two()) or mo.vstack(
        [
            mo.md(texts.EXPLORE_TWO),
            view.controls(tp, pp, microbatches, save),
            view.html(charts_two.banners(design) + markup.figures(charts_two.figures(design))),
            *view.chart(charts_two.bubble_chart(design)),
            priced_two,
            *view.when(
                priced_two.value,
                lambda: (
                    view.html(charts_priced.designed_html(design, priced.designed(design), priced.best())),
                    *view.chart(charts_priced.gpt3_chart(measured.gpt3_runs())),
                ),
            ),
            mo.md("### Act II worked out with your values"),
            view.html(markup.worked(charts_two.equations(design), "Act II worked out")),
        ]
    )
    return


@app.cell
def _(ask_two: Any, get_two: Any) -> None:
    view.reveal(ask_two, get_two())
    return


@app.cell
def _(desk: Any, get_two: Any, get_reflect_two: Any) -> tuple[Any, ...]:
    _ask = questions_two.reflection()
    form_reflect_two = view.form(_ask, desk)
    mo.vstack(
        [
            mo.md("### Where the document behind Act II slips"),
            view.html(markup.listed(questions_two.slips(), "act2-slips")),
            mo.md(texts.REFLECT_TWO),
            view.asked(_ask, get_reflect_two(), form_reflect_two),
            view.reveal(_ask, get_reflect_two()),
        ]
    ) if get_two() else view.html("")
    return (form_reflect_two,)


@app.cell
def _(desk: Any, get_three: Any) -> tuple[Any, ...]:
    ask_three = charts_three.prediction()
    form_three = view.form(ask_three, desk)
    mo.vstack([mo.md(texts.ACT_THREE), view.asked(ask_three, get_three(), form_three)])
    return ask_three, form_three


@app.cell
def _() -> tuple[Any, ...]:
    tp_in = mo.ui.slider(steps=[1, 2, 4, 8, 16, 32], value=8, label="tp_in", show_value=True)
    tp_out = mo.ui.slider(steps=[1, 2, 4, 5, 8, 10, 20, 40, 80], value=40, label="tp_out", show_value=True)
    replicas = mo.ui.slider(steps=[1, 2, 4, 8, 16, 32, 64], value=32, label="dp", show_value=True)
    tokens = mo.ui.slider(steps=[1 << n for n in range(9, 21)], value=32768, label="Tokens", show_value=True)
    width = mo.ui.dropdown({"16 bits": 2, "8 bits": 1}, value="16 bits", label="Elements")
    one_way = mo.ui.checkbox(label="Count what is received, one way")
    return one_way, replicas, tokens, tp_in, tp_out, width


@app.cell
def _(
    ask_three: Any,
    context: Any,
    get_three: Any,
    one_way: Any,
    replicas: Any,
    tokens: Any,
    tp_in: Any,
    tp_out: Any,
    width: Any,
) -> None:
    _sheet = Sheet(
        tp_in=tp_in.value,
        tp_out=tp_out.value,
        dp=replicas.value,
        tokens=tokens.value,
        element_bytes=width.value,
        one_way=one_way.value,
    )
    view.waiting(ask_three, get_three()) or mo.vstack(
        [
            view.controls(tp_in, tp_out, replicas, tokens, width, one_way),
            view.html(markup.figures(charts_three.figures(_sheet))),
            *view.chart(charts_three.context_chart(_sheet, context.value)),
            view.html(markup.worked(charts_three.equations(_sheet), "Act III worked out")),
            view.reveal(ask_three, get_three()),
        ]
    )
    return


@app.cell
def _(desk: Any, get_four: Any) -> tuple[Any, ...]:
    ask_four = charts_four.prediction()
    form_four = view.form(ask_four, desk)
    mo.vstack([mo.md(texts.ACT_FOUR), view.asked(ask_four, get_four(), form_four)])
    return ask_four, form_four


@app.cell
def _() -> tuple[Any, ...]:
    ranks = mo.ui.slider(steps=[1 << n for n in range(1, 11)], value=8, label="N (GPUs)", show_value=True)
    sequences = mo.ui.slider(steps=[1 << n for n in range(11)], value=32, label="B (sequences)", show_value=True)
    passing = mo.ui.slider(1, 128, 1, value=32, label="M (micro-batches)", include_input=True)
    return passing, ranks, sequences


@app.cell
def _(ask_four: Any, context: Any, get_four: Any, passing: Any, ranks: Any, sequences: Any) -> None:
    _volumes = Volumes(ranks=ranks.value, batch=sequences.value, microbatches=passing.value)
    view.waiting(ask_four, get_four()) or mo.vstack(
        [
            view.controls(ranks, sequences, passing),
            view.html(markup.figures(charts_four.figures(_volumes))),
            *view.chart(charts_four.volume_chart(_volumes)),
            view.html(markup.worked(charts_four.equations(_volumes), "Act IV worked out")),
            *view.chart(charts_four.hop_chart()),
            mo.md("### What a real plan sends, hop by hop"),
            view.html(markup.table(*charts_four.plan_rows(context.value))),
            view.reveal(ask_four, get_four()),
        ]
    )
    return


@app.cell
def _(desk: Any, get_five: Any) -> tuple[Any, ...]:
    ask_five = charts_five.prediction()
    form_five = view.form(ask_five, desk)
    mo.vstack([mo.md(texts.ACT_FIVE), view.asked(ask_five, get_five(), form_five)])
    return ask_five, form_five


@app.cell
def _(context: Any) -> tuple[Any, ...]:
    mode = mo.ui.dropdown({"strong": "strong", "weak": "weak"}, value="strong", label="Scaling")
    _counts = charts_five.COUNTS[context.value]
    count = mo.ui.slider(steps=list(_counts), value=_counts[-1], label="GPUs of the job", show_value=True)
    return count, mode


@app.cell
def _(ask_five: Any, context: Any, count: Any, get_five: Any, mode: Any) -> None:
    view.waiting(ask_five, get_five()) or mo.vstack(
        [
            view.controls(mode, count),
            *charts_five.panel(context.value, mode.value, count.value, view.html, view.chart),
            view.reveal(ask_five, get_five()),
        ]
    )
    return


@app.cell
def _(desk: Any, get_six: Any) -> tuple[Any, ...]:
    ask_six = charts_six.prediction()
    form_six = view.form(ask_six, desk)
    mo.vstack([mo.md(texts.ACT_SIX), view.asked(ask_six, get_six(), form_six)])
    return ask_six, form_six


@app.cell
def _() -> tuple[Any, ...]:
    paste = mo.ui.text_area(label=texts.PASTE, max_length=LARGEST, rows=4, full_width=True, debounce=True)
    rate = mo.ui.slider(steps=[25, 50, 100, 235, 300, 450], value=300, label="Rate [GB/s]", show_value=True)
    learned = mo.ui.slider(1, 80, 1, value=2, label="Parameters [billions]", include_input=True)
    return learned, paste, rate


@app.cell
def _(paste: Any) -> tuple[Any, ...]:
    curve = read_curve(paste.value)
    line = view.line_of(curve)
    return curve, line


@app.cell
def _(ask_six: Any, curve: Any, get_six: Any, learned: Any, line: Any, paste: Any, rate: Any) -> None:
    _share = Bottleneck(billions=learned.value, rate=1e9 * rate.value)
    _line = curve.readings[line.value - 1]
    view.waiting(ask_six, get_six()) or mo.vstack(
        [
            view.controls(line, rate, learned),
            view.html(markup.figures(charts_six.figures(_line, curve.best, _share))),
            *view.chart(charts_six.chart(curve.readings, _line, curve.source)),
            view.html(markup.worked(charts_six.equations(_line, _share), "Act VI worked out")),
            view.reveal(ask_six, get_six()),
            paste,
            view.html(charts_six.refusal(curve)),
        ]
    )
    return


@app.cell
def _(desk: Any, get_entries: Any, get_trouble: Any) -> None:
    mo.vstack(
        [
            mo.md(texts.LEDGER),
            view.ledger(get_entries(), gathered=desk.sheet is not None, trouble=get_trouble()),
            view.downloads(get_entries()),
        ]
    )
    return


@app.cell
def _() -> None:
    mo.md(texts.TAKEAWAYS)
    return


@app.cell
def _(
    ask_five: Any,
    ask_four: Any,
    ask_one: Any,
    ask_six: Any,
    ask_three: Any,
    ask_two: Any,
    context: Any,
    design: Any,
    get_designs: Any,
    get_five: Any,
    get_four: Any,
    get_one: Any,
    get_six: Any,
    get_three: Any,
    get_two: Any,
) -> None:
    _answers = {
        ask_one: get_one(),
        ask_two: get_two(),
        ask_three: get_three(),
        ask_four: get_four(),
        ask_five: get_five(),
        ask_six: get_six(),
    }
    view.html(footer(context.value, view.rightness(_answers), design, get_designs()))
    return


if __name__ == "__main__":
    app.run()
