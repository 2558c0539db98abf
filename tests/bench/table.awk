# For the tables of tests/bench: samples by kind, rows of a figure beside its target, and what goes to the file `json`.
# add() in the rules; sort_kinds() first in END, then row(), and finish() last, which exits with 1 when a target is missed.

function sort_kind(kind,   i, j, n, t) {
	n = count[kind]
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && value[kind, j - 1] > value[kind, j]; j--) {
			t = value[kind, j]; value[kind, j] = value[kind, j - 1]; value[kind, j - 1] = t
		}
}
function median(kind,   n) {
	n = count[kind]
	return n % 2 ? value[kind, (n + 1) / 2] : (value[kind, n / 2] + value[kind, n / 2 + 1]) / 2
}
# At least `part` of them are no larger.
function quantile(kind, part,   i) {
	i = int(count[kind] * part)
	return value[kind, i < count[kind] * part ? i + 1 : i]
}
function sort_kinds(   i) {
	for (i = 1; i <= kind_count; i++) sort_kind(kinds[i])
}
function list(kind,   i, text) {
	for (i = 1; i <= count[kind]; i++) text = text (i > 1 ? ", " : "") value[kind, i]
	return "[" text "]"
}
function add(kind, number) {
	if (!(kind in count)) kinds[++kind_count] = kind
	value[kind, ++count[kind]] = number + 0
}
# A figure and its target: at most `limit`, or at least when `least`.
function row(name, figure, limit, least,   met) {
	met = least ? figure >= limit : figure <= limit
	if (!met) missed++
	printf "%-64s %10s %9s   %s\n", name, text_of(figure), (least ? ">= " : "<= ") text_of(limit), met ? "" : "MISSED"
	rows = rows sprintf("%s\n  {\"name\": \"%s\", \"figure\": %.6g, \"target\": %.6g, \"at_least\": %s, \"met\": %s}", rows ? "," : "", name,
		figure, limit, least ? "true" : "false", met ? "true" : "false")
}
# One without a target.
function figure_row(name, figure) {
	printf "%-64s %10s\n", name, text_of(figure)
	rows = rows sprintf("%s\n  {\"name\": \"%s\", \"figure\": %.6g}", rows ? "," : "", name, figure)
}
function text_of(number) { return number == int(number) ? sprintf("%d", number) : sprintf("%.4g", number) }
function time_row(name, kind) {
	printf "%-64s %10.2f %10.2f %6d\n", name, median(kind) / 1e6, value[kind, 1] / 1e6, count[kind]
}
# more: further members of the JSON, a comma first.
function finish(more,   i, raw) {
	printf "\n%s; Linux %s; QEMU %s\n", cpu, kernel, qemu
	for (i = 1; i <= kind_count; i++)
		raw = raw sprintf("%s\n  \"%s\": %s", i > 1 ? "," : "", kinds[i], list(kinds[i]))
	printf("{\"machine\": \"%s\", \"kernel\": \"%s\", \"qemu\": \"%s\", \"rows\": [%s\n]%s, \"samples\": {%s\n}}\n", cpu, kernel, qemu,
		rows, more, raw) >json
	exit missed > 0
}
