"""API Gateway's half of an integration: mapping templates, run by a real engine of their language.

What the engine cannot know are API Gateway's own variables, `$input`, `$util` and `$context`; they are written here
as its reference has them.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import airspeed

ESCAPES = {
    "\b": "\\b",
    "\n": "\\n",
    "\t": "\\t",
    "\f": "\\f",
    "\r": "\\r",
    "'": "\\'",
    '"': '\\"',
    "\\": "\\\\",
    "/": "\\/",
}


class Util:
    """`$util`."""

    def escapeJavaScript(self, text: str) -> str:  # noqa: N802 - API Gateway's name
        units = text.encode("utf-16-be", "surrogatepass")
        codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
        return "".join(
            ESCAPES.get(chr(code)) or (chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04X}") for code in codes
        )


@dataclass(frozen=True, slots=True)
class Input:
    """`$input`, of a request with these parameters, or of an answer with this body."""

    parameters: Mapping[str, str]
    body: str = ""

    def params(self, name: str) -> str:
        return self.parameters[name]

    def path(self, path: str) -> Any:
        assert path == "$"
        return json.loads(self.body)


class Override(dict[str, Any]):
    """`$context.responseOverride`: a second override of the same thing is an error."""

    def __setitem__(self, name: str, value: Any) -> None:
        assert name not in self, f"{name} is overridden twice"
        super().__setitem__(name, value)


def render(template: str, **variables: Any) -> str:
    rendered: str = airspeed.Template(template).merge({"util": Util(), **variables})
    return rendered


@dataclass(frozen=True, slots=True)
class Integration:
    """One method, as it is deployed."""

    action: str
    ask: str
    answers: Mapping[str, tuple[str, str]]
    """Pattern of the backend's status, and template, by status of the method; without a pattern it is the default."""

    @classmethod
    def of(cls, template: Mapping[str, Any], method: str, table: str) -> "Integration":
        """A method of a template, with the name that its table got."""

        def filled(text: Any) -> str:
            return text if isinstance(text, str) else text["Fn::Sub"][0].replace("${Table}", table)

        found = template["Resources"][method]["Properties"]["Integration"]
        answers = {
            reply["StatusCode"]: (
                reply.get("SelectionPattern", ""),
                filled(reply["ResponseTemplates"]["application/json"]),
            )
            for reply in found["IntegrationResponses"]
        }
        return cls(
            found["Uri"]["Fn::Sub"].rpartition("/")[2], filled(found["RequestTemplates"]["application/json"]), answers
        )

    def request(self, **parameters: str) -> str:
        """What DynamoDB is asked."""
        return render(self.ask, input=Input(parameters))

    def reply(self, status: int, body: str) -> tuple[int, Any]:
        """What a caller is told when DynamoDB answered this."""
        patterns = {code: pattern for code, (pattern, _) in self.answers.items() if pattern}
        default = next(code for code in self.answers if code not in patterns)
        chosen = next((code for code, pattern in patterns.items() if re.fullmatch(pattern, str(status))), default)
        override = Override()
        text = render(self.answers[chosen][1], input=Input({}, body), context={"responseOverride": override})
        return override.get("status", int(chosen)), json.loads(text)

    def call(self, dynamodb: Callable[[str, str], tuple[int, str]], **parameters: str) -> tuple[int, Any]:
        """Status and body of a request with these parameters in its path."""
        return self.reply(*dynamodb(self.action, self.request(**parameters)))
