"""Simulated AWS accounts, and sessions with them."""

from holdfast import Zone
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.evacuate.accounts import Accounts
from holdfast.simulate.aws.region import ACCOUNT, SimulatedRegion


class Cloud:
    """A server of accounts. All tests share its sessions, because boto3 takes long to create clients."""

    def __init__(self, address: str, regions: list[SimulatedRegion]) -> None:
        self.address, self.regions = address, regions
        self._sessions: dict[tuple[str, str], AwsSession] = {}

    def open(self, accounts: dict[str, str], region: str = "us-east-1") -> Accounts:
        """Return accounts of the settings: their numbers by their names. Every zone is in the region."""
        openers = [(name, lambda used, _, number=number: self._open(number, used)) for name, number in accounts.items()]

        def find_region(_: Zone) -> str:
            return region

        return Accounts(openers, find_region)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def _open(self, account: str, region: str) -> AwsSession:
        if (account, region) not in self._sessions:
            role = None if account == ACCOUNT else f"arn:aws:iam::{account}:role/holdfast"
            options = AwsOptions(region=region, endpoint_url=self.address, max_attempts=1, role_arn=role)
            self._sessions[account, region] = AwsSession(options)
        return self._sessions[account, region]
