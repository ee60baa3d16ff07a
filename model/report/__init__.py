"""The report of a training: facts as plain JSON, charts as Vega-Lite, and a page that needs no network.

`facts` assembles and reads the facts, `charts` draws them, `html_page` writes the page, `files` puts all of it into
files.
"""

PAGE_FILE = "report.html"
"""Name of the page beside a checkpoint."""
