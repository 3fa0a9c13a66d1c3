"""What only the client's own provider can do is refused in words by which its clients ask otherwise."""

import json

from tests.bodies import anthropic_request
from tests.gateway.running import in_front_of, run, running
from tests.gateway.test_faults import GOOD, whole
from tests.upstream.sockets import answering, upstream


def test_a_thread_is_anthropics_to_hold() -> None:
    """Without its history, a thread's next turn would be answered as if it were the first."""
    body = anthropic_request({"role": "user", "content": "Hi."}, thread={"type": "create"})

    async def work() -> None:
        async with upstream(answering(whole("200 OK", GOOD))) as origin, running(in_front_of(origin)) as gateway:
            answer = await gateway.post("/v1/messages", json.dumps(body).encode())
            error = json.loads(await answer.read(10_000))["error"]
            assert (answer.status, error["type"]) == (400, "invalid_request_error")
            assert error["details"] == {"error_code": "thread_unsupported_request"}

    run(work())
