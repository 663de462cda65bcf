"""Azurite, Microsoft's emulator of Azure Blob Storage, on loopback."""

import base64
import hashlib
import hmac
import http.client
import urllib.parse
from email.utils import formatdate

from programs import LIMIT, Server

# The account and the key that the emulator documents.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
API = "2021-12-02"


class Azurite:
    """Serves one empty container until `close`. DIRECTORY has the npm package `azurite`."""

    def __init__(self, directory, container):
        program = ["node", f"{directory}/node_modules/azurite/dist/src/blob/main.js", "--inMemoryPersistence"]
        program += ["--blobPort", "0", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        self.server = Server(program, r"http://127\.0\.0\.1:[1-9]\d*")
        self.close = self.server.stop
        self.endpoint = f"{self.server.url}/{ACCOUNT}"
        self.create(urllib.parse.urlsplit(self.endpoint).port, container)

    def create(self, port, container):
        date = formatdate(usegmt=True)
        signed = ["PUT"] + 11 * [""] + [f"x-ms-date:{date}", f"x-ms-version:{API}"]
        signed += [f"/{ACCOUNT}/{ACCOUNT}/{container}", "restype:container"]
        signature = hmac.digest(base64.b64decode(KEY), "\n".join(signed).encode(), hashlib.sha256)
        authorization = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
        headers = {"Authorization": authorization, "x-ms-date": date, "x-ms-version": API, "Content-Length": "0"}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        connection.request("PUT", f"/{ACCOUNT}/{container}?restype=container", headers=headers)
        answer = connection.getresponse()
        if answer.status != 201:
            raise OSError(f"azurite did not create the container: {answer.status} {answer.read().decode()}")
