"""The refusal of a case."""


class Refuse(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.code = code
