"""What scripts/mkdocs.yml needs beyond mkdocs: Markdown as GitHub reads it, pages for files of the source, and a
check of the built pages.  Each warning is an error, unless scripts/docs was called with --draft."""
import html
import html.parser
import json
import logging
import pathlib
import re
import urllib.parse
import warnings

# of the theme of Debian 12
warnings.filterwarnings("ignore", category=DeprecationWarning, module="jinja2")
log = logging.getLogger("mkdocs.docs")
kept = {".md", ".svg", ".png", ".html", ".css"}
fence = "~" * 20
largest = 100_000
anchors, made = {}, set()
drawing = """<script src="{}mermaid.js"></script>
<script>mermaid.initialize({{ startOnLoad: false, theme: "neutral" }}); mermaid.run({{ querySelector: ".diagram" }})</script>
"""


def on_config(config):
    config["mdx_configs"]["toc"]["slugify"] = anchor
    if (pathlib.Path(config["docs_dir"]) / "mermaid.js").exists():
        config["mdx_configs"]["pymdownx.superfences"] = {"custom_fences": [{"name": "mermaid", "class": "diagram", "format": diagram}]}
    return config


# Not of the class "mermaid", for which the theme would load a program from elsewhere.
def diagram(source, language, css_class, options, md, **others):
    return f'<div class="{css_class}">{html.escape(source)}</div>'


# Before mkdocs looks for pages: one for each file that a document may link to, and for each directory.
def on_pre_build(config):
    # the long list of these is no news
    logging.getLogger("mkdocs.structure.nav").setLevel(logging.WARNING)
    root = pathlib.Path(config["docs_dir"])
    paths = sorted(root.rglob("*"))
    for path in paths:
        if path.is_dir() and not (path / "README.md").exists():
            make(root, path, path / "README.md", "\n".join(f"* [{file.name}]({file.name})" for file in sorted(path.iterdir())))
        elif path.is_file() and path.suffix not in kept and path.stat().st_size <= largest:
            text = path.read_text(errors="replace")
            make(root, path, path.with_name(path.name + ".md"), f"{fence} {path.suffix[1:] or 'text'}\n{text}\n{fence}")


def make(root, path, page, text):
    page.write_text(f"# {path.relative_to(root)}\n\n{text}\n")
    made.add(str(page.relative_to(root)))


def on_nav(nav, config, files):
    for file in files.documentation_pages():
        if file.src_path.startswith("doc/") and file.src_path not in made and file.page not in nav.pages:
            log.warning("%s has no place in nav of scripts/mkdocs.yml", file.src_path)


# As GitHub makes them, and as test/t/Documents.pm checks them.
def anchor(heading, _separator):
    name = re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")
    times = anchors[name] = anchors.get(name, -1) + 1
    return f"{name}-{times}" if times else name


def on_page_markdown(markdown, page, config, files):
    anchors.clear()
    return "\n".join(adapted(markdown.split("\n"), pathlib.Path(page.file.abs_src_path).parent))


# No comments; links to the pages of files and directories; lists as Python's Markdown wants them: indented by four,
# a blank line before an item if there was one in the item before, no number and dot where a line of a sentence begins.
def adapted(lines, directory):
    columns, fence, comment, blank, loose = [], None, False, True, False
    for line, after in zip(lines, lines[1:] + [""]):
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        begins = re.match(r"`{3,}|~{3,}", text)
        marker = re.match(r"([*+-]|\d+\.) +", text)
        item = marker if marker and (blank or columns and (indent < columns[-1] or marker[1] in "*+-1.")) else None
        if fence:
            if begins and begins[0].startswith(fence) and not text.strip(fence[0] + " "):
                fence = None
        elif comment or text.startswith("<!--"):
            comment = "-->" not in text
            continue
        elif text:
            while columns and indent < columns[-1] and (blank or item or begins):
                columns.pop()
            fence = begins[0] if begins else None
            if marker and not item:
                text = text.replace(". ", "\\. ", 1)
            if not fence:
                line = " " * indent + with_pages(text, directory)
            elif text == fence and re.match(r"[\w.]+\((?:.*\) returns .*)?$", after):
                line += "sql"
            if item and loose and not blank:
                yield ""
            blank, loose = False, loose and not item
        else:
            blank, loose = True, bool(columns)
        yield "    " * len(columns) + line[min(indent, columns[-1] if columns else 0):]
        if item and not fence:
            columns.append(indent + len(item[0]))


def with_pages(text, directory):
    def link(found):
        path = directory / urllib.parse.unquote(found[1])
        if path.is_dir():
            return f"]({found[1].rstrip('/')}/README.md{found[2]})"
        if path.with_name(path.name + ".md").is_file():
            return f"]({found[1]}.md{found[2]})"
        return found[0]

    return re.sub(r"\]\(([^)\s#:]+)([^)\s]*)\)", link, text)


def on_post_page(output, page, config):
    if ".zh-CN." in page.file.src_path:
        output = output.replace('<html lang="en"', '<html lang="zh-CN"', 1)
    if '<div class="diagram">' in output:
        output = output.replace("</body>", drawing.format("../" * page.url.count("/")) + "</body>")
    return output


def on_post_build(config):
    site = pathlib.Path(config["site_dir"])
    search_manual_only(site / "search" / "search_index.json")
    check_links(site)


# Who searches is a user: what stands in the source's own documents would come before the manual.
def search_manual_only(path):
    index = json.loads(path.read_text())
    others = {re.sub(r"(?:README)?\.md$", "", page) for page in made}
    index["docs"] = [doc for doc in index["docs"] if not doc["location"].startswith(("src/", "test/"))
                     and re.sub(r"(?:index)?\.html.*$", "", doc["location"]) not in others]
    for doc in index["docs"]:
        doc["text"] = doc["text"].replace(" \u00b6", "")
    path.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")))


# Links of the built pages lead somewhere, and nothing is loaded from elsewhere.
def check_links(site):
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    for path, page in sorted(pages.items()):
        for tag, link in page.links:
            problem = problem_of(tag, link, path, pages)
            if problem:
                log.warning("%s: %s: %s", path.relative_to(site), problem, link)


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = {""}, []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors |= {attrs.get("id"), attrs.get("name")}
        self.links += [(tag, attrs[name]) for name in ("href", "src") if attrs.get(name)]


def problem_of(tag, link, path, pages):
    parts = urllib.parse.urlsplit(link)
    if parts.scheme or parts.netloc:
        return None if tag == "a" else "loaded from elsewhere"
    target = path.parent.joinpath(urllib.parse.unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target = target / "index.html"
    if not target.is_file():
        return "leads to no file"
    if target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
        return "leads to no anchor"
    return None
