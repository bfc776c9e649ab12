"""The lab as a marimo app: cells only place what the modules beside this one work out."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="The Parallelism Paradox", html_head_file="head.html")

with app.setup:
    from typing import Any

    import marimo as mo

    from optimizer.page.learn import view
    from optimizer.page.learn.acts.five import COUNTS
    from optimizer.page.learn.ledger import Desk, Visitor, footer, new_key


@app.cell
def _() -> tuple[Any, ...]:
    _nothing: Any = ()
    _silence: Any = ""
    _open: Any = {}
    get_1, set_1 = mo.state(_open, allow_self_loops=True)
    get_2, set_2 = mo.state(_open, allow_self_loops=True)
    get_3, set_3 = mo.state(_open, allow_self_loops=True)
    get_4, set_4 = mo.state(_open, allow_self_loops=True)
    get_5, set_5 = mo.state(_open, allow_self_loops=True)
    get_6, set_6 = mo.state(_open, allow_self_loops=True)
    get_entries, set_entries = mo.state(_nothing)
    get_designs, set_designs = mo.state(_nothing)
    get_trouble, set_trouble = mo.state(_silence)
    desk = Desk(
        visitor=Visitor(key=new_key()),
        answers=view.changes_by_question({1: set_1, 2: set_2, 3: set_3, 4: set_4, 5: set_5, 6: set_6}),
        entries=set_entries,
        designs=set_designs,
        trouble=set_trouble,
        sheet=view.sheet(),
    )
    forms = view.forms(desk)
    return desk, forms, get_1, get_2, get_3, get_4, get_5, get_6, get_designs, get_entries, get_trouble


@app.cell
def _(desk: Any) -> tuple[Any, ...]:
    controls_1, controls_2, controls_3, controls_4 = (view.controls(act) for act in (1, 2, 3, 4))
    controls_6, paste = view.controls(6, "paste", "line"), view.control(6, "paste")
    save = view.saving(desk, controls_2)
    return controls_1, controls_2, controls_3, controls_4, controls_6, paste, save


@app.cell
def _() -> tuple[Any, ...]:
    context, student = view.visitor_fields()
    mo.vstack([view.header(), context, student])
    return context, student


@app.cell
def _(context: Any, desk: Any, student: Any) -> None:
    desk.visitor = Visitor(key=desk.visitor.key, name=student.value, context=context.value)


@app.cell
def _(get_1: Any, forms: Any) -> None:
    view.opening(1, get_1(), forms)


@app.cell
def _(context: Any, controls_1: Any, get_1: Any, forms: Any) -> None:
    view.panel(1, get_1(), forms, context.value, controls_1)


@app.cell
def _(get_1: Any, forms: Any) -> None:
    view.closing(1, get_1(), forms)


@app.cell
def _(get_2: Any, forms: Any) -> None:
    view.opening(2, get_2(), forms)


@app.cell
def _(context: Any, controls_2: Any, get_2: Any, forms: Any, save: Any) -> None:
    view.panel(2, get_2(), forms, context.value, controls_2, save=save)


@app.cell
def _(get_2: Any, forms: Any) -> None:
    view.closing(2, get_2(), forms)


@app.cell
def _(get_3: Any, forms: Any) -> None:
    view.opening(3, get_3(), forms)


@app.cell
def _(context: Any, controls_3: Any, get_3: Any, forms: Any) -> None:
    view.panel(3, get_3(), forms, context.value, controls_3)


@app.cell
def _(get_4: Any, forms: Any) -> None:
    view.opening(4, get_4(), forms)


@app.cell
def _(context: Any, controls_4: Any, get_4: Any, forms: Any) -> None:
    view.panel(4, get_4(), forms, context.value, controls_4)


@app.cell
def _(get_5: Any, forms: Any) -> None:
    view.opening(5, get_5(), forms)


@app.cell
def _(context: Any) -> tuple[Any, ...]:
    _counts = COUNTS[context.value]
    controls_5 = view.controls(5, count={"steps": list(_counts), "value": _counts[-1]})
    return (controls_5,)


@app.cell
def _(context: Any, controls_5: Any, get_5: Any, forms: Any) -> None:
    view.panel(5, get_5(), forms, context.value, controls_5)


@app.cell
def _(get_6: Any, forms: Any) -> None:
    view.opening(6, get_6(), forms)


@app.cell
def _(paste: Any) -> tuple[Any, ...]:
    line = view.line_of(paste.value)
    return (line,)


@app.cell
def _(context: Any, controls_6: Any, get_6: Any, forms: Any, line: Any, paste: Any) -> None:
    view.panel(6, get_6(), forms, context.value, controls_6, line=line, paste=paste)


@app.cell
def _(desk: Any, get_entries: Any, get_trouble: Any) -> None:
    mo.vstack(
        [
            view.text("ledger"),
            view.ledger(get_entries(), gathered=desk.sheet is not None, trouble=get_trouble()),
            view.downloads(get_entries()),
        ]
    )


@app.cell
def _() -> None:
    view.text("takeaways")


@app.cell
def _(get_1: Any, get_2: Any, get_3: Any, get_4: Any, get_5: Any, get_6: Any) -> tuple[Any, ...]:
    answers = (get_1(), get_2(), get_3(), get_4(), get_5(), get_6())
    return (answers,)


@app.cell
def _(answers: Any, context: Any, controls_2: Any, forms: Any, get_designs: Any) -> None:
    _right = view.rightness(forms, *answers)
    view.html(footer(context.value, _right, view.design_of(controls_2), get_designs()))


if __name__ == "__main__":
    app.run()
