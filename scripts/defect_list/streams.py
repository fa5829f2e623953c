"""Defects of the stream event generator: `lmerge/testing/streams`."""

from seeded import Defect

FOLDER = "lmerge/testing/streams/"
ARRIVALS = FOLDER + "arrivals.py"
BATCHES = FOLDER + "batches.py"
DRAWS = FOLDER + "draws.py"
FACETS = FOLDER + "facets.py"
GENERATOR = FOLDER + "generator.py"
HISTORIES = FOLDER + "histories.py"
LARGE = FOLDER + "large_inputs.py"
LIFETIMES = FOLDER + "lifetimes.py"
MEASURES = FOLDER + "measures.py"
MERGE = FOLDER + "merge_inputs.py"
PAYLOADS = FOLDER + "payloads.py"
STABLES = FOLDER + "stables.py"
TESTS = "tests/testing/streams/"
OF_FACETS = TESTS + "test_facets.py::"
OF_GENERATOR = TESTS + "test_generator.py::"
OF_MERGE = TESTS + "test_merge_inputs.py::"
OF_LIFETIMES = OF_FACETS + "test_a_level_about_lifetimes_holds_for_every_seed"
OF_ARRIVAL = OF_FACETS + "test_a_level_about_arrival_holds_for_every_seed"
OF_NUMBERS = OF_FACETS + "test_a_number_in_place_of_a_level_holds_for_every_seed"
OF_PAIRS = OF_GENERATOR + "test_every_pair_of_levels_gives_legal_streams_of_the_table"

DEFECTS = (
    Defect(
        "generator: a stable goes one unit further than the next change",
        STABLES,
        "        found.append(min(found[-1], sync_time(element)))",
        "        found.append(min(found[-1], sync_time(element) + 1))",
        OF_PAIRS,
    ),
    Defect(
        "generator: the old end of an adjust holds no stable back",
        STABLES,
        "        return min(element.vold, element.ve)",
        "        return element.ve",
        OF_PAIRS,
    ),
    Defect(
        "generator: a tight stable passes the next element",
        STABLES,
        "    moving = {at: limits[at] for at in meeting}\n",
        "    moving = {at: limits[at] + 1 for at in meeting}\n",
        OF_PAIRS,
    ),
    Defect(
        "generator: tight stables are a unit early",
        STABLES,
        "    moving = {at: limits[at] for at in meeting}",
        "    moving = {at: limits[at] - 1 for at in meeting}",
        OF_ARRIVAL,
    ),
    Defect(
        "generator: drawn stables wait for changes that have come",
        STABLES,
        "        left[sync_time(element)] -= 1\n",
        "        left[sync_time(element)] -= 0\n",
        OF_ARRIVAL,
    ),
    Defect(
        "generator: an open stream is stable behind all that came",
        STABLES,
        'most = max(times, default=INF) if facets.liveliness == "open" else INF',
        'most = INF - 1 if facets.liveliness == "open" else INF',
        OF_FACETS + "test_an_open_stream_leaves_room_for_what_comes_behind_its_last_change",
    ),
    Defect(
        "generator: disorder moves nothing",
        ARRIVALS,
        "        moved = random.randrange(1, limit + 1) if limit and random.random() < share else 0\n",
        "        moved = 0\n",
        OF_ARRIVAL,
    ),
    Defect(
        "generator: an element comes one place too late",
        ARRIVALS,
        "random.randrange(1, limit + 1) if limit and",
        "random.randrange(1, limit + 2) if limit and",
        OF_ARRIVAL,
    ),
    Defect(
        "generator: displaced elements of an event change places",
        ARRIVALS,
        "        yield histories[number][taken[number]]\n",
        "        yield histories[number][len(histories[number]) - 1 - taken[number]]\n",
        OF_PAIRS,
    ),
    Defect(
        "generator: mixed events come in order",
        ARRIVALS,
        "    width = MIXED_MAX if places else 1",
        "    width = 1",
        OF_ARRIVAL,
    ),
    Defect(
        "generator: what is to grow comes with a later end",
        HISTORIES,
        'is_earlier = level == "grow" or',
        'is_earlier = level == "shrink" or',
        OF_ARRIVAL,
    ),
    Defect(
        "generator: an event that never was stays",
        HISTORIES,
        "_chain(ghost, [ghost.ve, ghost.vs])",
        "_chain(ghost, [ghost.ve])",
        OF_PAIRS,
    ),
    Defect(
        "generator: an event that is removed does not come again",
        HISTORIES,
        "        return _chain(event, [event.ve, event.vs, event.ve])",
        "        return _chain(event, [event.ve, event.vs])",
        OF_PAIRS,
    ),
    Defect(
        "generator: drawn ends stop before the right one",
        HISTORIES,
        "    while ends[-1] != ve:",
        "    if ends[-1] != ve:",
        OF_PAIRS,
    ),
    Defect(
        "generator: events that are one unit apart are all behind the end",
        LIFETIMES,
        "    return 1 if random.random() < 0.5 else -1",
        "    return 1",
        OF_LIFETIMES,
    ),
    Defect(
        "generator: touching lifetimes are one unit apart",
        LIFETIMES,
        '    if facets.contact == "back-to-back":\n        return 0',
        '    if facets.contact == "back-to-back":\n        return 1',
        OF_LIFETIMES,
    ),
    Defect(
        "generator: events that are apart touch",
        LIFETIMES,
        "else 1 + random.randrange(2 * lanes.gap)",
        "else random.randrange(2 * lanes.gap)",
        OF_LIFETIMES,
    ),
    Defect(
        "generator: long events are as short as others",
        LIFETIMES,
        "LONG: Final = (24, 32)",
        "LONG: Final = (4, 8)",
        OF_LIFETIMES,
    ),
    Defect(
        "generator: an event without an end has a large one",
        LIFETIMES,
        "[(start, INF) if at in chosen else",
        "[(start, INF - 1) if at in chosen else",
        OF_LIFETIMES,
    ),
    Defect(
        "generator: high overlap is that of medium",
        LIFETIMES,
        "count = facets.events if is_high else int(min(facets.number",
        "count = min(4, facets.events) if is_high else int(min(facets.number",
        OF_LIFETIMES,
    ),
    Defect(
        "generator: copies of an event have other ends",
        GENERATOR,
        "        found += [event] * copies",
        "        found += [event, *(event._replace(ve=event.ve - 1 - at) for at in range(copies - 1))]",
        OF_LIFETIMES,
    ),
    Defect(
        "generator: equal events are there by chance",
        GENERATOR,
        "        seen.add(event)\n",
        "        seen.clear()\n",
        OF_GENERATOR + "test_no_two_events_are_equal_by_chance",
    ),
    Defect(
        "generator: edge events have gaps",
        GENERATOR,
        "        found += [(key, span) for span in pairwise([*begun, INF])]\n",
        "        found += [(key, (vs, ve - 1)) for vs, ve in pairwise([*begun, INF])]\n",
        OF_GENERATOR + "test_edge_events_of_a_key_follow_each_other",
    ),
    Defect(
        "generator: other facets of arrival give another table",
        GENERATOR,
        'random = Draw(f"table {seed}")',
        'random = Draw(f"table {seed} {facets.disorder} {facets.liveliness} {facets.revisions}")',
        OF_FACETS + "test_a_facet_of_arrival_alone_changes_the_stream_and_not_the_table",
    ),
    Defect(
        "generator: keys by zipf are equally frequent",
        PAYLOADS,
        "    weights = [1 / n for n in range(1, SEVERAL + 1)]",
        "    weights = [1.0 for n in range(1, SEVERAL + 1)]",
        OF_GENERATOR + "test_keys_are_distributed_as_the_level_means",
    ),
    Defect(
        "generator: no extreme text is long",
        PAYLOADS,
        "LONG_SHARE: Final = 0.02",
        "LONG_SHARE: Final = 0.0",
        OF_GENERATOR + "test_rows_of_every_type_are_rows_of_the_schema",
    ),
    Defect(
        "generator: draws beyond 64 bits are small",
        DRAWS,
        "            number = self.getrandbits(bits)\n",
        "            number = self.getrandbits(bits) % count\n",
        OF_GENERATOR + "test_draws_are_the_same_on_every_version_of_python",
    ),
    Defect(
        "generator: words that contradict each other are accepted",
        FACETS,
        "            if reason is not None and not (",
        "            if reason == one and not (",
        OF_FACETS + "test_what_cannot_be_is_an_error_that_names_both_levels",
    ),
    Defect(
        "generator: a number is forgotten beside a word",
        FACETS,
        "if stated is None else stated",
        "if stated is None or stated > 0 else stated",
        OF_NUMBERS,
    ),
    Defect(
        "generator: a number is stated beside a word that has none",
        FACETS,
        '        if name in stated and name != "alive":',
        '        if name in stated and name == "alive":',
        "tests/testing/transforming/test_transformer.py::test_where_a_number_is_stated_the_levels_fit_it",
    ),
    Defect(
        "generator: a batch loses its last element",
        BATCHES,
        "    if piece:\n        yield piece\n",
        "    if len(piece) > 1:\n        yield piece[:-1]\n",
        OF_GENERATOR + "test_batches_have_all_elements_of_each_input_in_order",
    ),
    Defect(
        "generator: a batch goes on behind a stable",
        BATCHES,
        'or (batching == "at-stables" and isinstance(element, Stable)):',
        'or (batching == "all" and isinstance(element, Stable)):',
        OF_GENERATOR + "test_batches_are_cut_as_their_levels_mean",
    ),
    Defect(
        "generator: a skewed interleaving is drawn like any other",
        BATCHES,
        '9 if level == "skewed" else 1',
        "1",
        OF_GENERATOR + "test_interleavings_are_as_their_levels_mean",
    ),
    Defect(
        "generator: the displacement of elements is not measured",
        MEASURES,
        "            found.append(len(seen) - bisect_right(seen, change.vs))",
        "            found.append(len(seen) - bisect_right(seen, INF))",
        OF_ARRIVAL,
    ),
    Defect(
        "generator: an event that ends at the join is of the past",
        MERGE,
        "    kept = {(event.vs, event.payload) for event in events if event.ve >= join_at}",
        "    kept = {(event.vs, event.payload) for event in events if event.ve > join_at}",
        OF_MERGE + "test_what_joins_late_is_right_from_its_time_on",
    ),
    Defect(
        "generator: ties come in one order",
        MERGE,
        'random.random() if ties == "shuffled" else at',
        "at",
        OF_MERGE + "test_an_ordered_stream_is_in_order_of_start_and_stables_come_up_to_the_next_one",
    ),
    Defect(
        "generator: a large input is stable over what is still to come",
        LARGE,
        "(int(position) - places) * STEP",
        "int(position) * STEP",
        OF_MERGE + "test_large_inputs_are_streams_of_one_table_in_orders_of_their_own",
    ),
)
