"""Defects of the backend for Kubernetes. Those that need an API server are proved where one can be started."""

from seeded import Defect

RULES = "lmerge_controller/kubernetes/lease_rules.py"
RULES_TEST = "tests/controller/kubernetes/test_lease_rules.py::"

DEFECTS = (
    Defect(
        "an acquisition by the holder before keeps its term",
        RULES,
        "floor) + 1\n",
        "floor) + (self.identity != ((lease or {}).get('spec') or {}).get('holderIdentity'))\n",
        RULES_TEST + "test_the_holder_before_gets_a_new_term",
    ),
    Defect(
        "a missing lease is taken at once",
        RULES,
        "        return now - self._observed_at >= self.times.lease_s\n",
        "        return lease is None or now - self._observed_at >= self.times.lease_s\n",
        RULES_TEST + "test_a_term_is_above_the_floor_where_the_lease_was_lost",
    ),
    Defect(
        "a leader measures from when its renewal was answered",
        RULES,
        "Leadership(term_of(lease), sent + self.times.renew_s, is_confirmed)",
        "Leadership(term_of(lease), now + self.times.renew_s, is_confirmed)",
        RULES_TEST + "test_a_leader_stops_by_when_it_sent_its_last_renewal",
    ),
    Defect(
        "who creates the lease acts before others have seen it",
        RULES,
        "now + self.times.lease_s if is_created else sent",
        "sent",
        RULES_TEST + "test_who_creates_the_lease_acts_after_the_others_have_seen_it",
    ),
    Defect(
        "a candidate that has not looked for long counts the time as missing",
        RULES,
        "        if mark != self._observed or is_gap:\n",
        "        if mark != self._observed:\n",
        RULES_TEST + "test_a_lease_that_may_have_come_and_gone_between_two_looks_is_waited_for_again",
    ),
    Defect(
        "a leader does not notice that another term has begun",
        RULES,
        "(holder, term_of(lease)) == (self.identity, self.leadership.term)",
        "holder == self.identity",
        RULES_TEST + "test_a_leader_that_finds_another_holder_or_term_or_no_lease_leads_no_longer",
    ),
    Defect(
        "a status of an earlier term is accepted",
        "lmerge_controller/kubernetes/crd.py",
        "self.term >= oldSelf.term",
        "self.term >= 0",
        "tests/controller/kubernetes/test_crd.py::test_the_committed_definition_is_what_the_schema_gives",
    ),
)
