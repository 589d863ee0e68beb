# SPDX-License-Identifier: BSD-3-Clause
"""A folder with a job and its text, for tests that export models, and the text's
part that the trainer validates on."""
import os
import shutil
import tempfile
import unittest


class ExchangeFolder(unittest.TestCase):
    """CONFIG, the job's, names its sequences' LENGTH and the text's VALIDATED
    fraction."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weft-exchange-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.text = b"".join(b"%d wefts and %d warps\n" % (i, i * i)
                             for i in range(300))
        with open(self.path("text.txt"), "wb") as file:
            file.write(self.text)
        with open(self.path("job.yaml"), "w") as file:
            file.write(self.CONFIG)

    def path(self, name):
        return os.path.join(self.folder, name)

    def validation_loss(self, losses_of):
        """As the trainer takes it: windows side by side, the last one as early
        as the text needs it; each target counts once. losses_of(window) are
        those of all its bytes but the first."""
        text = self.text
        at, losses = len(text) - int(len(text) * self.VALIDATED), []
        while at < len(text) - 1:
            begin = min(at, len(text) - self.LENGTH - 1)
            own = losses_of(text[begin:begin + self.LENGTH + 1])
            losses += own[at - begin:]
            at += self.LENGTH
        return sum(losses) / len(losses)
