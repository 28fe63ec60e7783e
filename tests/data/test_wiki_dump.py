"""The articles of a dump, without redirects and pages about the encyclopedia."""

from txlbench.data.wiki_dump import Article, articles

PAGE = """
  <page><title>{title}</title><ns>{ns}</ns><id>1</id>{redirect}
    <revision><id>2</id><text xml:space="preserve">{text}</text></revision></page>"""


def test_only_articles_are_read_in_order_with_entities_resolved(tmp_path):
    pages = [
        PAGE.format(title="B &amp; C", ns=0, redirect="", text="&lt;b&gt;bold&lt;/b&gt;"),
        PAGE.format(title="Away", ns=0, redirect='<redirect title="A" />', text="#REDIRECT"),
        PAGE.format(title="Talk:A", ns=1, redirect="", text="talk"),
        PAGE.format(title="A", ns=0, redirect="", text=""),
    ]
    path = tmp_path / "dump.xml"
    start = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">'
    path.write_text(f"{start}{''.join(pages)}</mediawiki>")
    assert list(articles(path)) == [Article("B & C", "<b>bold</b>"), Article("A", "")]
