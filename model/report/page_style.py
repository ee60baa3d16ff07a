"""The style of the page: light and dark, on a screen and on paper."""

__all__ = ["STYLE"]

STYLE = """
:root { color-scheme: light dark;
  --ink: #1f2a37; --muted: #5b6675; --rule: #e3e7ec; --paper: #ffffff; --panel: #f6f8fa;
  --blue: #1862b0; --orange: #c8590d; --grey: #98a2ae; --band: #cfe0f4; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e4e8ed; --muted: #a3adb9; --rule: #303944; --paper: #14191f; --panel: #1c232b;
  --blue: #6bb0f5; --orange: #f2995a; --grey: #77828f; --band: #24415f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 860px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; }
h2 { font-size: 21px; margin: 52px 0 8px; padding-top: 18px; border-top: 1px solid var(--rule); }
h3 { font-size: 16.5px; margin: 34px 0 2px; }
p { margin: 6px 0 12px; max-width: 72ch; }
.muted, figcaption { color: var(--muted); }
figure { margin: 0; }
figcaption { max-width: 76ch; margin: 2px 0 12px; font-size: 15px; }
figure svg { display: block; max-width: 100%; height: auto; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(148px, 1fr)); gap: 12px; margin: 20px 0 12px; }
.card { background: var(--panel); border-radius: 8px; padding: 10px 14px; }
.card b { display: block; font-size: 23px; font-weight: 600; line-height: 1.3; }
.card small { font-size: 14px; font-weight: 400; color: var(--muted); white-space: nowrap; }
.card span { color: var(--muted); font-size: 14px; }
.note { border-left: 3px solid var(--orange); padding: 2px 0 2px 14px; margin: 14px 0; }
.wide { overflow-x: auto; margin: 12px 0 20px; }
table { border-collapse: collapse; font-size: 14.5px; min-width: 60%; }
th, td { text-align: left; padding: 5px 18px 5px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { color: var(--muted); font-weight: 500; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bars { width: 120px; height: 24px; display: block; fill: var(--blue); }
dl { display: grid; grid-template-columns: minmax(150px, max-content) 1fr; gap: 4px 22px; font-size: 15px; }
dt { color: var(--muted); } dd { margin: 0; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; } a { color: var(--blue); }
footer { margin-top: 56px; color: var(--muted); font-size: 14px; }
@media print { h2 { break-after: avoid; } figure, table { break-inside: avoid; } nav { display: none; } }
"""
