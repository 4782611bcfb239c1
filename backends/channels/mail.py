"""E-mail through the operator's server, by the standard library's client in a thread."""

import asyncio
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import format_datetime

from backends.channels.base import MailServer, Notice, Outcome
from backends.channels.words import lines_of, title_of

_MAX_SUBJECT = 150


class Mail:
    """Sends one message to the server. The time of each step is bounded, and so is the whole attempt."""

    def __init__(self, server: MailServer, timeout_seconds: float) -> None:
        self._server = server
        self._timeout_seconds = timeout_seconds

    async def send(self, notice: Notice, address: str) -> Outcome:
        """Send the notice to one recipient."""
        if not self._server.host:
            return Outcome("no mail server is set (TOLLKEEPER_ALERTS_SMTP_HOST)", is_final=True)
        message = message_of(notice, self._server.sender, address)
        try:
            # The thread ends by itself: each step of the protocol has its own time limit.
            return await asyncio.wait_for(asyncio.to_thread(self._hand_over, message), 4 * self._timeout_seconds)
        except TimeoutError:
            return Outcome(f"the mail server did not answer within {self._timeout_seconds:g} seconds", True)

    def _hand_over(self, message: EmailMessage) -> Outcome:
        server = self._server
        is_handed_over = is_taken = False
        try:
            with smtplib.SMTP(server.host, server.port, timeout=self._timeout_seconds) as client:
                if server.has_tls:
                    client.starttls(context=ssl.create_default_context())
                if server.user:
                    client.login(server.user, server.password)
                is_handed_over = True
                client.send_message(message, server.sender, [str(message["To"])])
                is_taken = True
        except smtplib.SMTPRecipientsRefused as error:
            # A server that greylists says 450 at first, and takes the message a few minutes later.
            is_final = all(500 <= code < 600 for code, _ in error.recipients.values())
            return Outcome("the mail server refuses the recipient", is_final=is_final)
        except smtplib.SMTPResponseException as error:
            if is_taken:  # the answer to QUIT does not matter
                return Outcome()
            # 5xx is permanent (RFC 5321, section 4.2.1). The server's text may contain addresses.
            return Outcome(f"the mail server answered {error.smtp_code}", is_final=500 <= error.smtp_code < 600)
        except (smtplib.SMTPException, OSError) as error:
            fault = f"the mail server could not be used ({type(error).__name__})"
            # If a server does not answer, smtplib reports a disconnection, with the cause only in the context.
            if isinstance(error, TimeoutError) or isinstance(error.__context__, TimeoutError):
                fault = f"the mail server did not answer within {self._timeout_seconds:g} seconds"
            return Outcome(fault, may_have_arrived=is_handed_over)
        return Outcome()


def message_of(notice: Notice, sender: str, recipient: str) -> EmailMessage:
    """Return the message. Its Message-ID is the notification's, the same in every attempt."""
    message = EmailMessage()
    title = title_of(notice).replace("\n", " ").replace("\r", " ")
    message["Subject"] = title[:_MAX_SUBJECT]
    message["From"] = sender
    message["To"] = recipient
    message["Date"] = format_datetime(notice.created_at)
    message["Message-ID"] = f"<{notice.id}@tollkeeper>"
    message.set_content("\n".join([title, "", *lines_of(notice)]) + "\n")
    return message
