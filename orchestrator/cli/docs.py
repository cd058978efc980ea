"""``manyseed docs``."""

from __future__ import annotations

from typing import Annotated

import typer

from manyseed.orchestrator.cli import completing

_WIDEST = 100


def docs(
    page: Annotated[
        str | None,
        typer.Argument(
            metavar="[PAGE]",
            help="A page, or PAGE#HEADING; without it, all pages are listed.",
            autocompletion=completing.pages,
        ),
    ] = None,
) -> None:
    """Show a page of the documentation, or one section of it; as Markdown in a pipe.

    Examples:

        manyseed docs

        manyseed docs start

        manyseed docs faq#it-stopped-in-the-middle

        manyseed docs sweep-file | less
    """
    from rich.markdown import Markdown

    from manyseed.orchestrator.cli.output import console, print_table, say_next
    from manyseed.orchestrator.errors import UserError, nearest
    from manyseed.orchestrator.pages import pages, sections

    texts = pages()
    if page is None:
        titles = [(name, next(iter(sections(text).values()))[0]) for name, text in texts.items()]
        print_table(None, ("page", "what it is about"), titles)
        console.print()
        return say_next("Read one", "docs", "start")
    name, _, heading = page.partition("#")
    name = name.removeprefix("docs/").removesuffix(".md")
    if name not in texts:
        raise UserError(
            "there is no such page", key="PAGE", value=name, remedy=nearest(name, texts)
        )
    text, by_heading = texts[name], sections(texts[name])
    if heading and heading not in by_heading:
        raise UserError(
            f"the page {name} has no such heading",
            key="HEADING",
            value=heading,
            remedy=nearest(heading, by_heading),
        )
    text = by_heading[heading][1] if heading else text
    if console.is_terminal:
        console.print(Markdown(text, hyperlinks=False), width=min(console.width, _WIDEST))
    else:
        console.print(text, end="", soft_wrap=True)
    return None
