"""The status endpoint that is a bucket."""

import pytest

from holdfast import InvalidValue
from holdfast.status.export import BucketOptions, build_bucket_template

RESOURCES = build_bucket_template(BucketOptions(name="zones"))["Resources"]


def test_anybody_may_read_objects_of_zones_by_name_and_nothing_else() -> None:
    [statement] = RESOURCES["StatusPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert statement | {"Sid": ""} == {
        "Sid": "",
        "Effect": "Allow",
        "Principal": "*",
        "Action": "s3:GetObject",
        "Resource": {"Fn::Sub": "${StatusBucket.Arn}/*.txt"},
    }


def test_a_policy_makes_it_public_and_an_access_control_list_cannot() -> None:
    properties = RESOURCES["StatusBucket"]["Properties"]
    assert properties["PublicAccessBlockConfiguration"] == {
        "BlockPublicAcls": True,
        "IgnorePublicAcls": True,
        "BlockPublicPolicy": False,
        "RestrictPublicBuckets": False,
    }
    assert properties["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]


def test_objects_are_encrypted_with_a_key_that_readers_need_no_leave_for() -> None:
    [rule] = RESOURCES["StatusBucket"]["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}


def test_a_name_is_given_or_left_to_cloudformation() -> None:
    assert RESOURCES["StatusBucket"]["Properties"]["BucketName"] == "zones"
    assert "BucketName" not in build_bucket_template(BucketOptions())["Resources"]["StatusBucket"]["Properties"]


@pytest.mark.parametrize("name", ["Zones", "a", "with.dots", "-zones", "zones/status", ""])
def test_a_name_that_s3_would_not_take_or_not_serve_over_https_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="bucket is"):
        BucketOptions(name=name)
