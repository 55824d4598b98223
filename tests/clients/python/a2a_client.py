"""Talks to an agent of the server by the published A2A SDK, as another agent would, and prints what it got as JSON lines."""

import asyncio
import json
import sys

import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.helpers.proto_helpers import new_text_message
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from google.protobuf.json_format import MessageToDict


def show(what, item):
    print(json.dumps({"of": what, **MessageToDict(item)}), flush=True)


async def main(url, version, steps):
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        # The SDK takes the first address of the card that it speaks.
        chosen = [of for of in card.supported_interfaces if of.protocol_version.startswith(version)]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(chosen)
        show("card", card)
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=True)).create(card)
        task = context = None
        for step in steps:
            if step == "get":
                show(step, await client.get_task(GetTaskRequest(id=task)))
                continue
            if step == "cancel":
                show(step, await client.cancel_task(CancelTaskRequest(id=task)))
                continue
            if step.startswith("push:"):
                config = TaskPushNotificationConfig(task_id=task, id="mine", url=step.removeprefix("push:"), token="known")
                await client.create_task_push_notification_config(config)
                listed = await client.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(task_id=task))
                show("push", listed)
                continue
            if step.startswith("list:"):
                # Page by page, as a client reads a long list.
                asked = ListTasksRequest(context_id=context, page_size=1, include_artifacts=step == "list:artifacts")
                while True:
                    page = await client.list_tasks(asked)
                    show(step, page)
                    if not page.next_page_token:
                        break
                    asked.page_token = page.next_page_token
                continue
            if step == "subscribe":
                stream = client.subscribe(SubscribeToTaskRequest(id=task))
            else:
                is_reply = step.startswith("reply:")
                message = new_text_message(step.removeprefix("reply:"), role=Role.ROLE_USER)
                if step == "Files":
                    message.parts.append(Part(raw=b"AB", media_type="image/png", filename="a.png"))
                    message.parts.append(Part(url="https://a.example/b.pdf", media_type="application/pdf"))
                if context:
                    message.context_id = context
                if is_reply:
                    message.task_id = task
                stream = client.send_message(SendMessageRequest(message=message))
            async for item in stream:
                show(step, item)
                if item.HasField("task"):
                    task, context = item.task.id, item.task.context_id


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
