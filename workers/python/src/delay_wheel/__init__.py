"""Workers for the messages of delay_wheel, the PostgreSQL extension that runs work later."""
from .calls import schedule, send
from .message import Context, GiveUp, Message, Retry
from .worker import Worker

__all__ = ["Context", "GiveUp", "Message", "Retry", "Worker", "schedule", "send"]
