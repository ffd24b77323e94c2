"""What API Gateway says to DynamoDB, and makes of its answer, in the Velocity Template Language.

Written with few words of it, because API Gateway's dialect is documented by example:
https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-mapping-template-reference.html
`${Table}` is put in by CloudFormation, before anything is deployed. A name of a table has no characters that matter.
"""

# Names in a path may contain anything. This escapes all that ends a string in JSON, and an apostrophe as \', which JSON
# does not know: so that is taken back, as the page above tells everybody to. The result goes nowhere but into strings.
_ZONE = """#set($zone = $util.escapeJavaScript($input.params('az-id')).replaceAll("\\\\'", "'"))"""
_WORKLOAD = """#set($workload = $util.escapeJavaScript($input.params('workload')).replaceAll("\\\\'", "'"))"""

# The status may be overridden once, or API Gateway fails: hence the variable, and the override at the end.
# https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-override-request-response-parameters.html
_ANSWER = """#if($status != 200)
#set($context.responseOverride.status = $status)
#end
{"healthy": $healthy}"""

ASK_FOR_ZONE = f"""{_ZONE}
{{"TableName": "${{Table}}", "Key": {{"AZ-ID": {{"S": "$zone"}}}}, "ConsistentRead": true,
"ProjectionExpression": "Healthy"}}"""
"""GetItem: is the zone out for all workloads?"""

ANSWER_FOR_ZONE = f"""#set($root = $input.path('$'))
#set($status = 200)
#set($healthy = true)
#if($root.Item.Healthy['BOOL'] == false)
#set($status = 500)
#set($healthy = false)
#end
{_ANSWER}"""
"""500 if an item says that the zone is not healthy; 200 if it says so, or there is none."""

ASK_FOR_WORKLOAD = f"""{_ZONE}
{_WORKLOAD}
{{"RequestItems": {{"${{Table}}": {{"Keys": [{{"AZ-ID": {{"S": "$zone"}}}}, {{"AZ-ID": {{"S": "$zone/$workload"}}}}],
"ConsistentRead": true, "ProjectionExpression": "Healthy"}}}}}}"""
"""BatchGetItem: is the zone out for all workloads, or for this one?"""

ANSWER_FOR_WORKLOAD = f"""#set($root = $input.path('$'))
#set($status = 200)
#set($healthy = true)
#foreach($key in $root.UnprocessedKeys['${{Table}}'].Keys)
#set($status = 503)
#set($healthy = "null")
#end
#foreach($item in $root.Responses['${{Table}}'])
#if($item.Healthy['BOOL'] == false)
#set($status = 500)
#set($healthy = false)
#end
#end
{_ANSWER}"""
"""500 if either item says that the zone is not healthy; else 503 if DynamoDB left one of them out."""

ANSWER_FOR_ERROR = '{"healthy": null}'
"""For whatever else DynamoDB says: it is not known. Not 500, because nobody said that the zone is out."""
