"""
A page as a reader's program sees it: its tags, its text, and what is wrong with it.
"""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input", "col"}

ACTIVE = {
    "script",
    "iframe",
    "object",
    "embed",
    "link",
    "img",
    "form",
    "base",
    "foreignobject",
    "animate",
    "use",
}
"""Tags that load or run something."""


class Seen(HTMLParser):
    """
    Reads a page; `faults` are tags that do not nest, ids that are not unique, and whatever loads or runs.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.text: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.style = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        self.faults += [f"<{tag}> is not closed" for tag in self._open]
        self.faults += [f"id {one} is not unique" for one in set(self.ids) if self.ids.count(one) > 1]
        self.faults += [f"{link} leads nowhere" for link in self.links if link[1:] not in self.ids]
        self.faults += (
            ["the style loads something"] if "url(" in self.style or "@import" in self.style else []
        )

    @property
    def words(self) -> str:
        """
        All text of the page, with single blanks.
        """
        return " ".join(" ".join(self.text).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """
        Note a tag and what it carries.
        """
        self.tags.append(tag)
        if tag in ACTIVE:
            self.faults.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith("on") or name in ("src", "srcset", "action", "style", "xlink:href"):
                self.faults.append(f"{tag} {name}={value}")
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.links.append(value or "")
                self.faults += [] if (value or "").startswith("#") else [f"{tag} {name}={value}"]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """
        Note a tag that ends itself, as in SVG.
        """
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        """
        Hold an end against what is open.
        """
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        """
        Keep text, that of the style apart.
        """
        if self._open[-1:] == ["style"]:
            self.style += data
        else:
            self.text.append(data)
