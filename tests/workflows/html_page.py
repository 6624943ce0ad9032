"""Pages as tests read them."""

from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br"}
"""Elements of HTML that have no end tag."""
HOSTILE = "<script>alert('x')</script> & \"quoted\" | x"


class Page(HTMLParser):
    """Elements, attributes and text of a page, whose tags must be balanced."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.attributes, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
