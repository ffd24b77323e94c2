"""The simplest status endpoint: a bucket in which an object says that a zone is out. Pure."""

from dataclasses import dataclass

from holdfast.status.export.template import (
    BUCKET,
    Template,
    build_policy,
    build_resource,
    build_retained_resource,
    new_template,
    require_match,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketOptions:
    """How the bucket is called."""

    name: str | None = None
    """None leaves it to CloudFormation, which finds one that nobody has."""

    def __post_init__(self) -> None:
        if self.name is not None:
            require_match("bucket", self.name, BUCKET, "3 to 63 lower-case letters, digits and hyphens")


def build_bucket_template(options: BucketOptions) -> Template:
    """A bucket whose objects `*.txt` anybody may read by name: health checks of Route 53 cannot sign their requests.

    Nobody may list it, so S3 answers 403 for an object that does not exist. An inverted check takes that for healthy,
    as it does an outage of S3 and a policy that was taken away: none of these leaves a zone. But a bucket that became
    private no longer evacuates, and says so to nobody: drill. Everybody who guesses the name can read the objects.
    """
    properties = {
        **({} if options.name is None else {"BucketName": options.name}),
        # Not with a key of KMS: nobody could read the objects without signing.
        "BucketEncryption": {
            "ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
        },
        "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
        # Public by its policy only, never by an access control list.
        "PublicAccessBlockConfiguration": {
            "BlockPublicAcls": True,
            "IgnorePublicAcls": True,
            "BlockPublicPolicy": False,
            "RestrictPublicBuckets": False,
        },
        # No versions: what counts is whether the object is there, and the server keeps its own record of changes.
        # No expiry: a zone must not come back because of its age.
    }
    everybody_reads = build_policy(
        Sid="AnybodyReadsStatus",
        Principal="*",
        Action="s3:GetObject",
        Resource={"Fn::Sub": "${StatusBucket.Arn}/*.txt"},
    )
    access = build_resource("AWS::S3::BucketPolicy", Bucket={"Ref": "StatusBucket"}, PolicyDocument=everybody_reads)
    return new_template(
        "Which zones are out, as objects: use1-az1.txt for all workloads, shop/use1-az1.txt for one.",
        {"StatusBucket": build_retained_resource("AWS::S3::Bucket", **properties), "StatusPolicy": access},
        Outputs={
            "BucketName": {"Description": "Where to put and delete objects.", "Value": {"Ref": "StatusBucket"}},
            "Endpoint": {
                "Description": "Where health checks look for objects.",
                "Value": {"Fn::Sub": "https://${StatusBucket.RegionalDomainName}"},
            },
        },
    )
