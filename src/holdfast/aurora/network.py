"""A new network for the functions, as part of a CloudFormation template. Pure.

10.0.0.0/16 with two public subnets (zones 1 and 2), three for Aurora and three for the functions (zones 1 to 3). The
first two subnets of the functions reach the internet through NAT gateways. All three reach the services that the
functions call through interface endpoints.
"""

from holdfast.aurora.names import Template, build_resource, get_attribute, refer

ENDPOINTS = ("rds", "logs", "states", "events")
"""The services that functions inside the network call."""
_CHINESE_ENDPOINTS = ("rds", "states")
"""Services whose endpoints have another name in China."""
_ANYWHERE = "0.0.0.0/0"
_HTTPS = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443}


def build_network() -> tuple[Template, Template]:
    """Return the VpcConfig of functions, and the resources that it refers to. They need the condition `IsChina`."""
    lambda_subnets = [refer(f"LambdaSubnet{zone}") for zone in (1, 2, 3)]
    resources = {
        "Vpc": build_resource("AWS::EC2::VPC", CidrBlock="10.0.0.0/16", EnableDnsSupport=True, EnableDnsHostnames=True),
        "InternetGateway": build_resource("AWS::EC2::InternetGateway"),
        "InternetGatewayAttachment": build_resource(
            "AWS::EC2::VPCGatewayAttachment", VpcId=refer("Vpc"), InternetGatewayId=refer("InternetGateway")
        ),
        "PublicRoutes": _build_routes(),
        "PublicRoute": {
            **_build_default_route("PublicRoutes", GatewayId=refer("InternetGateway")),
            "DependsOn": "InternetGatewayAttachment",
        },
        "AuroraRoutes": _build_routes(),
        "LambdaSecurityGroup": build_resource(
            "AWS::EC2::SecurityGroup",
            GroupDescription="Functions: HTTPS out and nothing in",
            VpcId=refer("Vpc"),
            SecurityGroupEgress=[{**_HTTPS, "CidrIp": _ANYWHERE, "Description": "Services of AWS"}],
        ),
        "EndpointSecurityGroup": build_resource(
            "AWS::EC2::SecurityGroup",
            GroupDescription="Endpoints: HTTPS from the functions",
            VpcId=refer("Vpc"),
            SecurityGroupIngress=[{**_HTTPS, "SourceSecurityGroupId": refer("LambdaSecurityGroup")}],
        ),
    }
    for zone in (1, 2):
        resources |= _build_subnet("PublicSubnet", zone, 0, "PublicRoutes") | _build_nat(zone)
    for zone in (1, 2, 3):
        resources |= _build_subnet("AuroraSubnet", zone, 10, "AuroraRoutes")
        resources |= _build_subnet("LambdaSubnet", zone, 20, f"LambdaRoutes{zone}")
        resources[f"LambdaRoutes{zone}"] = _build_routes()
    for service in ENDPOINTS:
        resources[f"{service.capitalize()}Endpoint"] = build_resource(
            "AWS::EC2::VPCEndpoint",
            VpcEndpointType="Interface",
            VpcId=refer("Vpc"),
            ServiceName=_name_service(service),
            SubnetIds=lambda_subnets,
            SecurityGroupIds=[refer("EndpointSecurityGroup")],
            PrivateDnsEnabled=True,
        )
    return {"SubnetIds": lambda_subnets, "SecurityGroupIds": [refer("LambdaSecurityGroup")]}, resources


def _build_subnet(kind: str, zone: int, first: int, routes: str) -> Template:
    """Return a subnet in a zone, 1 to 3, with its routes."""
    name = f"{kind}{zone}"
    return {
        name: build_resource(
            "AWS::EC2::Subnet",
            VpcId=refer("Vpc"),
            CidrBlock=f"10.0.{first + zone - 1}.0/24",
            AvailabilityZone={"Fn::Select": [zone - 1, {"Fn::GetAZs": ""}]},
            Tags=[{"Key": "Name", "Value": {"Fn::Sub": f"${{AWS::StackName}}-{kind}-{zone}"}}],
        ),
        f"{name}Routes": build_resource(
            "AWS::EC2::SubnetRouteTableAssociation", SubnetId=refer(name), RouteTableId=refer(routes)
        ),
    }


def _build_nat(zone: int) -> Template:
    """Return the NAT gateway of a zone, and the route to it from the functions' subnet in the same zone."""
    address, gateway = f"NatAddress{zone}", f"NatGateway{zone}"
    return {
        address: {**build_resource("AWS::EC2::EIP", Domain="vpc"), "DependsOn": "InternetGatewayAttachment"},
        gateway: build_resource(
            "AWS::EC2::NatGateway",
            SubnetId=refer(f"PublicSubnet{zone}"),
            AllocationId=get_attribute(address, "AllocationId"),
        ),
        f"LambdaRoute{zone}": _build_default_route(f"LambdaRoutes{zone}", NatGatewayId=refer(gateway)),
    }


def _build_routes() -> Template:
    return build_resource("AWS::EC2::RouteTable", VpcId=refer("Vpc"))


def _build_default_route(routes: str, **target: Template) -> Template:
    return build_resource("AWS::EC2::Route", RouteTableId=refer(routes), DestinationCidrBlock=_ANYWHERE, **target)


def _name_service(service: str) -> Template:
    name = f"com.amazonaws.${{AWS::Region}}.{service}"
    usual = {"Fn::Sub": name}
    return {"Fn::If": ["IsChina", {"Fn::Sub": f"cn.{name}"}, usual]} if service in _CHINESE_ENDPOINTS else usual
