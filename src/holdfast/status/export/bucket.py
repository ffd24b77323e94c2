"""The simplest status endpoint: a bucket in which an object means that a zone is out. Pure."""

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
    """Options of the bucket."""

    name: str | None = None
    """Name of the bucket; None lets CloudFormation generate a unique one."""

    def __post_init__(self) -> None:
        if self.name is not None:
            require_match("bucket", self.name, BUCKET, "3 to 63 lower-case letters, digits and hyphens")


def build_bucket_template(options: BucketOptions) -> Template:
    """Return the template of a bucket with public objects `*.txt`: Route 53's health checks cannot sign requests.

    Listing is not public, so S3 answers 403 for an object that does not exist. An inverted check counts that as
    healthy, and also an outage of S3 or a deleted policy: none of these evacuates a zone. But a bucket that became
    private silently evacuates nothing any more: test the failover regularly. Anyone who guesses an object's name can
    read it.
    """
    properties = {
        **({} if options.name is None else {"BucketName": options.name}),
        # Not with a KMS key: unsigned requests could not read the objects.
        "BucketEncryption": {
            "ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
        },
        "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
        # Public only by its policy, never by an access control list.
        "PublicAccessBlockConfiguration": {
            "BlockPublicAcls": True,
            "IgnorePublicAcls": True,
            "BlockPublicPolicy": False,
            "RestrictPublicBuckets": False,
        },
        # No versioning: only the existence of an object matters, and the server has its own log of changes.
        # No expiry: a zone must not come back because its object is old.
    }
    public_read = build_policy(
        Sid="AnybodyReadsStatus",
        Principal="*",
        Action="s3:GetObject",
        Resource={"Fn::Sub": "${StatusBucket.Arn}/*.txt"},
    )
    access = build_resource("AWS::S3::BucketPolicy", Bucket={"Ref": "StatusBucket"}, PolicyDocument=public_read)
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
