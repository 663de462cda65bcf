"""Azurite, Microsoft's emulator of Azure Blob Storage, on loopback."""

import base64
import hashlib
import hmac
import http.client
import socket
import subprocess
import time
from email.utils import formatdate

# The account and the key that the emulator documents.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
API = "2021-12-02"


class Azurite:
    """Serves one empty container until `close`. DIRECTORY has the npm package `azurite`."""

    def __init__(self, directory, container):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        program = ["node", f"{directory}/node_modules/azurite/dist/src/blob/main.js", "--inMemoryPersistence"]
        program += ["--blobPort", str(port), "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        self.process = subprocess.Popen(program, stdout=subprocess.DEVNULL)
        self.endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        for _ in range(300):
            try:
                return self.create(port, container)
            except ConnectionRefusedError:
                time.sleep(0.1)
        raise TimeoutError("azurite does not listen after 30 s")

    def create(self, port, container):
        date = formatdate(usegmt=True)
        signed = ["PUT"] + 11 * [""] + [f"x-ms-date:{date}", f"x-ms-version:{API}"]
        signed += [f"/{ACCOUNT}/{ACCOUNT}/{container}", "restype:container"]
        signature = hmac.digest(base64.b64decode(KEY), "\n".join(signed).encode(), hashlib.sha256)
        authorization = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
        headers = {"Authorization": authorization, "x-ms-date": date, "x-ms-version": API, "Content-Length": "0"}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("PUT", f"/{ACCOUNT}/{container}?restype=container", headers=headers)
        answer = connection.getresponse()
        if answer.status != 201:
            raise OSError(f"azurite did not create the container: {answer.status} {answer.read().decode()}")

    def close(self):
        self.process.terminate()
        self.process.wait()
