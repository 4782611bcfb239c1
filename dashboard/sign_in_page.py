"""The sign-in page: plain HTML, so that it works before Streamlit is loaded."""

from html import escape
from typing import Final

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b2330; --quiet: #566073; --ground: #f6f7f9; --card: #ffffff;
  --line: #d5dbe3; --edge: #77839a; --accent: #0f766e; --on-accent: #ffffff; --bad: #b42331; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9f0; --quiet: #a3afc0; --ground: #0f141b; --card: #171e28;
  --line: #35404f; --edge: #7d8ba1; --accent: #2dd4bf; --on-accent: #0f141b; --bad: #ff8a93; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
main { width: min(24rem, calc(100vw - 2rem)); padding: 2rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; }
h1 { margin: 0 0 1.25rem; font-size: 1.25rem; }
label { display: block; margin: 0 0 1rem; font-weight: 600; }
input { display: block; width: 100%; margin-top: .25rem; padding: .55rem .7rem; font: inherit; color: inherit;
  background: transparent; border: 1px solid var(--edge); border-radius: 6px; }
button, a.button { display: block; width: 100%; padding: .6rem; font: inherit; font-weight: 600; text-align: center;
  text-decoration: none; color: var(--on-accent); background: var(--accent); border: 0; border-radius: 6px;
  cursor: pointer; }
a.button { margin-bottom: 1.25rem; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
p { margin: 0 0 1rem; } p.bad { color: var(--bad); }
p.quiet { margin: 1rem 0 0; color: var(--quiet); font-size: .87rem; }
"""


def sign_in_page(*, next_path: str, problem: str = "", email: str = "", provider: str = "") -> str:
    """Return the page as HTML. `problem`: why the last attempt failed; `provider`: the identity provider, if any."""
    said = f'<p class="bad" role="alert">{escape(problem)}</p>' if problem else ""
    elsewhere = f'<a class="button" href="/?signing_in=1">Sign in with {escape(provider)}</a>' if provider else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · Tollkeeper</title><style>{_STYLE}</style></head>
<body><main><h1>Sign in to Tollkeeper</h1>{said}{elsewhere}
<form method="post" action="/sign-in">
<input type="hidden" name="next" value="{escape(next_path)}">
<label>E-mail
<input name="email" type="email" autocomplete="username" required autofocus value="{escape(email)}"></label>
<label>Password<input name="password" type="password" autocomplete="current-password" required></label>
<button>Sign in</button>
</form>
<p class="quiet">No account? Ask an administrator: <code>tollkeeper accounts add</code>.</p>
</main></body></html>"""
