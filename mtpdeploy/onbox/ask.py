"""
One HTTP request on the box itself, where its sshd forwards no ports.
"""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any


def main(request: dict[str, Any]) -> None:
    """
    Answer `{"port", "method", "path", "body", "timeout"}` with the reply of a server on 127.0.0.1.

    `body` is a text of JSON or None. The answer is `{"status", "body", "problem"}`, `body` in base64;
    status 0 where no reply came.
    """
    connection = http.client.HTTPConnection("127.0.0.1", request["port"], timeout=request["timeout"])
    headers = {"Content-Type": "application/json"} if request["body"] is not None else {}
    answer: dict[str, Any] = {"status": 0, "body": "", "problem": ""}
    try:
        connection.request(request["method"], request["path"], request["body"], headers)
        response = connection.getresponse()
        answer.update(status=response.status, body=base64.b64encode(response.read()).decode("ascii"))
    except (OSError, http.client.HTTPException) as error:
        answer["problem"] = f"{type(error).__name__} {error}".rstrip()
    finally:
        connection.close()
    print(json.dumps(answer))
