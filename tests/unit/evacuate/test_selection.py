"""The resources that are chosen by type, name and tag."""

import pytest

from holdfast import InvalidValue
from holdfast.evacuate.selection import Selection

SHOP = Selection(names=("shop-*",), tags={"service": "shop"})


def test_everything_is_chosen_by_default() -> None:
    assert Selection().matches("load-balancer", "shop")
    assert Selection().describe() == ""


def test_a_resource_must_have_a_chosen_type_and_a_name_that_matches() -> None:
    selection = Selection(types=("load-balancer", "status"), names=("shop-*", "blog"))
    assert selection.matches("load-balancer", "shop-web")
    assert selection.matches("load-balancer", "blog")
    assert not selection.matches("load-balancer", "Shop-web"), "names of AWS differ by case"
    assert not selection.matches("auto-scaling-group", "shop-web")
    assert Selection(types=("pod",), names=("a",)).matches("status", "database", is_in_aws=False), "it is the lock"
    assert Selection(types=("pod",)).matches(None, "shop"), "a hold protects, whatever is moved"
    assert Selection(names=("kube",)).matches("karpenter-node-pool", "kube/default")
    assert selection.describe() == "types load-balancer, status; names shop-*, blog"


def test_a_person_chooses_among_the_resources_of_a_workload() -> None:
    merged = SHOP.merge(Selection(types=("load-balancer",), tags={"stage": "live"}))
    assert merged == Selection(types=("load-balancer",), names=("shop-*",), tags={"service": "shop", "stage": "live"})
    assert merged.merge(merged) == merged
    assert Selection().merge(merged) == merged
    assert merged.describe() == "types load-balancer; names shop-*; tags service=shop, stage=live"


def test_selections_with_different_values_of_a_tag_have_no_resource_in_common() -> None:
    assert not SHOP.may_overlap(Selection(tags={"service": "blog"}))
    assert SHOP.may_overlap(Selection(tags={"stage": "live"}))
    assert SHOP.may_overlap(SHOP)
    assert Selection().may_overlap(SHOP)


@pytest.mark.parametrize(
    ("workload", "chosen", "problem"),
    [
        (SHOP, Selection(tags={"service": "blog"}), "no resource can have another value as well"),
        (SHOP, Selection(names=("blog-*",)), "choose by type or tag instead"),
        (Selection(types=("status",)), Selection(types=("load-balancer",)), "only the types status"),
    ],
)
def test_a_choice_that_the_workload_cannot_have_is_refused(
    workload: Selection, chosen: Selection, problem: str
) -> None:
    with pytest.raises(InvalidValue, match=problem):
        workload.merge(chosen)
