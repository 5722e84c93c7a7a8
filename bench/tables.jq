# One result as the Markdown of the table $name; with $known: is there such a table?

def digits($n): # fixed, as a text; the typographic minus
  . as $x | (. | fabs) as $a | pow(10; $n) as $p | ($a * $p | round) as $r
  | ($r / $p | floor | tostring) as $whole | ($r - ($r / $p | floor) * $p | tostring) as $rest
  | (if $x < 0 and $r > 0 then "−" else "" end) + $whole + (if $n > 0 then "." + ("0" * ($n - ($rest | length)) // "") + $rest else "" end);
def signed($n): digits($n) as $t | if . > 0 and (digits($n) | test("[1-9]")) then "+" + $t else $t end;
def cells: "| " + (map(tostring) | join(" | ")) + " |";
def grid($head): ([$head, ($head | map("---"))] + .) | map(cells) | .[];
def ms: . * 1000 | digits(1);
def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
def where: "`\(.command)`, \(.date), commit \(.commit); \(.machine)\(if .note then "; \(.note)" else "" end)\(if (.load_before // 0) > 1.5 then "; load of \(.load_before) before it began" else "" end).";
def rows: .result.rows;

def designs:
  "Step time ÷ bound, smaller is better; wall clock, the link is simulated and the compute is time that passes. " + where, "",
  ([rows | group_by(.compute_share)[] | (map({(.label): .over_bound}) | add) as $x
    | [.[0].compute_share] + (["copy, then compute", "two layer slots, contiguous", "two layer slots, spread"] | map($x[.] | digits(2))) + ["**\($x["this engine"] | digits(2))**"]]
   | grid(["compute ÷ copy time", "copy, then compute", "two layer slots, contiguous", "two layer slots, spread", "libofload"]));

def tokens:
  "Step time ÷ bound, real products; wall clock, the link is simulated. " + where, "",
  ([rows | group_by(.tokens)[] | (map({(.label): .over_bound}) | add) as $x
    | [.[0].tokens, .[0].bound] + (["copy, then compute", "two layer slots, contiguous", "two layer slots, spread"] | map($x[.] | digits(2))) + ["**\($x["this engine"] | digits(2))**"]]
   | grid(["tokens a step", "what binds", "copy, then compute", "two layer slots, contiguous", "two layer slots, spread", "libofload"]));

def rate: if . >= 10 then digits(1) elif . >= 0.1 then digits(2) else digits(3) end;
def replay:
  "Device and link are simulated in every row. " + where, "",
  ([rows[] | [.label, "\(.compute), \(.clock) clock", .sequences, (.forecast_seconds * 1000 | digits(0)), (.step_seconds * 1000 | digits(0)), "\(.error_percent | signed(1)) %",
    (.tokens_per_second | rate), (.published | rate)]]
   | grid(["layout", "compute", "sequences", "forecast, ms a step", "run", "error", "tokens/s", "published"]));

def published:
  "`\(.command)`: forecasts from rates of data sheets and of what such links are known to carry; nothing ran.", "",
  ([rows[] | [.label, .sequences, (.tokens_per_second // 0 | rate), (.published | rate), (.assumed // "")]]
   | grid(["system, model, hardware: layout", "sequences", "forecast, tokens/s", "published", "assumed"]));

def batch:
  "Wall clock, the links are simulated, the products real; two runs of each. " + where, "",
  ([rows[] | (.runs | map(.error_percent)) as $e
    | [.label, ([.runs[].forecast_step_seconds | ms] | join(", ")), ([.runs[].step_seconds | ms] | join(", ")),
       ([$e[] | signed(1)] | join(", ")) + " %", ([.runs[].over_bound_percent | signed(1)] | join(", ")) + " %"]]
   | grid(["device", "forecast, ms a step", "measured", "error", "over max(link, compute) of those runs"])), "",
  ([rows[] | select(.label | test("nothing streamed") | not) | .runs[].error_percent | fabs]
   | "Streamed rows: the median of the errors' sizes is \(median | digits(1)) %, the worst \(max | digits(1)) %.");

def bound:
  (rows | map(select(.label | test("55"))) | map(.above_bound) | max) as $fast | (rows | map(select(.label | test("55") | not)) | map(.above_bound) | max) as $slow
  | "`\(.command)` (modelled): at most \($slow | digits(3)) of the bound up to 25 GB/s and \($fast | digits(3)) at 55 GB/s; whole layers in two slots \(rows | map(.whole_blocks_above_bound) | min | digits(2)) to \(rows | map(.whole_blocks_above_bound) | max | digits(2)).";

def queue:
  rows[1] as $r | "`\(.command)` (simulated, virtual clock): filling each step anew is \($r.gain | digits(2)) times as fast as batches that wait for their longest, \($r.slots_busy * 100 | digits(0)) % of the slots busy.";

def points: rows | map(select(.tokens));
def kind($what): points | map(select(.compute == $what));
def total($what): rows[] | select(.compute == $what and .worst_error_percent);
def last: rows[-1];
def bounded($what): map(select(.bound == $what));
def errors: map(.error_percent | fabs);
def run_errors: map(.least_error_percent, .most_error_percent | fabs);
def names: {kernels: "simulated kernels, which take a time and no core", products: "real products on this machine's cores"};

def accuracy:
  "Wall clock, the links are simulated; a point's error is the median (of two the mean) of its \(last.label | capture("(?<n>[0-9]+) times").n) runs. " + where, "",
  ([("kernels", "products") as $k | select(kind($k) | length > 0)
    | ((("link", "compute") as $b | (kind($k) | bounded($b)) | select(length > 0)
        | [names[$k], "\($b)-bound", length, "\(errors | median | digits(1)) %", "\(errors | max | digits(1)) %", "\(run_errors | max | digits(1)) %"]),
       ((kind($k) | length) as $n | total($k)
        | [names[$k], "**all**", $n, "**\(.median_error_percent | digits(1)) %**", "**\(.worst_error_percent | digits(1)) %**", "\(.worst_run_error_percent | digits(1)) %"]))]
   | grid(["compute", "points", "number", "median error", "worst", "worst single run"])), "",
  "Of the same point run again the error differs in the median by \([("kernels", "products") as $k | total($k) | "\(.median_spread_percent | digits(1)) points (\($k))"] | join(", ")).";

def accuracy_points:
  "Wall clock, the links are simulated. " + where, "",
  ([points[] | [.compute, .label + (if (.busy_share // 1) < 0.98 then " (disturbed)" else "" end), (.forecast_seconds | ms), (.step_seconds | ms), "\(.error_percent | signed(1)) %", "\(.spread_percent | digits(1))", (.over_bound | digits(2)),
    "\(.compute_error_percent | signed(1)) %", (.wait_seconds | ms)]]
   | grid(["compute", "point", "forecast, ms a step", "measured", "error", "spread", "over max(link, compute)", "compute against forecast", "waited, ms"]));

def compare:
  "Wall clock, the links are simulated, the products real. " + where, "",
  ([rows | range(0; length; 2) as $i | [.[$i].label, (.[$i].step_seconds | ms), (.[$i + 1].step_seconds | ms), "**\(.[$i + 1].times_as_fast | digits(2))**"]]
   | grid(["model, memory, sequences", "PyTorch with hooks, ms a step", "libofload", "times as fast"])), "",
  "PyTorch: \(rows[0].through), \(rows[0].threads) threads.";

def plan:
  where, "",
  ([rows[] | [.label, .tensors, .units, (.plan_seconds | ms), (.peak_bytes / 1e6 | digits(0))]] | grid(["model", "tensors", "units", "plan, ms", "peak memory, MB"]));
def front:
  where, "",
  ([rows[] | [.label, (.items_per_step | digits(0)), (.seconds_per_step * 1e6 | digits(1)), (.slowest_seconds * 1e6 | digits(0))]] | grid(["queue", "shares a step", "µs a step", "slowest"]));
def units:
  "Simulated device \(.result.device). " + where, "",
  ([rows[] | [.units, .streamed_units, (.seconds_per_step * 1e6 | digits(0)), (.seconds_per_unit * 1e6 | digits(2))]] | grid(["units", "of them streamed", "µs a step", "µs a unit"]));
def load:
  "Simulated device \(.result.device). " + where, "",
  ([rows[] | [.label, (.seconds | ms), (.bytes_per_second / 1e9 | digits(2)), "\(.spread_percent | digits(0)) %"]] | grid(["weights", "ms", "GB/s", "spread"]));

def link:
  "The link is simulated. " + where, "",
  ([rows[] | select(.seconds) | [.label, (.seconds * 1e6 | digits(1)), (.bytes_per_second / 1e9 | digits(2))]] | grid(["copy", "µs", "GB/s"])), "",
  ([rows[] | select(.start_seconds) | [.label, (.start_seconds * 1e6 | digits(1)), (.bytes_per_second / 1e9 | digits(2))]] | grid(["start + bytes ÷ rate", "start, µs", "rate, GB/s"]));

def soak:
  "Simulated device \(.result.device); " + where, "",
  ([rows[] | [.label, .seconds, (.memory_bytes / 1e6 | digits(1)), .handles, .threads, (.answered_bytes_per_second / 1e3 | digits(1))]]
   | grid(["", "seconds", "memory of its own, MB", "handles", "threads", "answered, kB/s"])), "",
  "\(.result.answers) answers in \(.result.steps) steps, \(.result.error_lines) error lines; a step took \(.result.error_percent | signed(0)) % of the forecast"
  + (if .result.quiet then ", the pace of the quarters \((.result.pace_spread - 1) * 100 | digits(0)) % apart." else "; other work kept the machine busy, so the pace says nothing." end);

def tables: {soak: "", link: "", designs: "", tokens: "", replay: "", published: "", batch: "", bound: "", queue: "", accuracy: "", "accuracy-points": "", compare: "", plan: "", front: "", units: "", load: ""};
if $known then tables | has($name)
elif $name == "link" then link elif $name == "designs" then designs elif $name == "tokens" then tokens elif $name == "replay" then replay elif $name == "published" then published
elif $name == "batch" then batch elif $name == "bound" then bound elif $name == "queue" then queue
elif $name == "accuracy" then accuracy elif $name == "accuracy-points" then accuracy_points elif $name == "compare" then compare
elif $name == "plan" then plan elif $name == "front" then front elif $name == "units" then units elif $name == "soak" then soak else load end
