"""What a page holds, as a browser would see it."""

from html.parser import HTMLParser

VOID = ("meta", "img", "br")
DRAWN = ("path", "use", "clipPath", "rect", "image")


class Parsed(HTMLParser):
    """Text, ids and addresses of a page; every tag has to be closed.

    Attributes:
        text: without scripts and styles.
        names: of metadata, with their values.
    """

    def __init__(self, page):
        super().__init__()
        self.text, self.ids, self.addresses, self.names, self.open = "", [], [], {}, []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids += [values["id"]] if "id" in values else []
        self.addresses += [v for k, v in attrs if k in ("src", "href", "xlink:href")]
        if tag == "meta" and "name" in values:
            self.names[values["name"]] = values["content"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["script"], ["style"]):
            self.text += data
