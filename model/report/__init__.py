"""The report of a version: one page that needs no network, and the facts behind its charts as JSON.

`facts` has what ``model.json`` does not keep, `charts` draws it as Vega-Lite, and `files` writes the page.
"""
