// CSV, JUnit XML and the HTML page; see report.h.
// Contract: the page needs nothing but itself and follows the reader's light or dark setting.
#include <algorithm>
#include <cmath>

#include "lib/error.h"
#include "lib/report.h"

namespace logitgate {
namespace {

// RFC 4180: quoted where a comma, a quote or a line break would mislead.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

std::string csv_token(uint32_t id, const TokenNames& names) {
  return id < names.size() ? csv_field(names[id]) : std::string();
}

std::string test_case(const GateRow& row, bool strict) {
  const std::string name =
      fmt::format("record {} position {}", escape_markup(row.key.record), row.key.position);
  const std::string said = fmt::format(
      "{}{}{}: max_diff {}, argmax {} against {}, margin {}", to_string(row.verdict.row_class),
      row.verdict.reason == Reason::none ? "" : " ", to_string(row.verdict.reason), number_text(row.max_diff),
      row.reference_argmax, row.candidate_argmax, number_text(row.reference_margin));
  std::string text = fmt::format("    <testcase classname=\"logitgate.gate\" name=\"{}\">\n", name);
  const bool flip = row.verdict.row_class == RowClass::near_tie_flip;
  if (flip) {
    text +=
        fmt::format("      <properties><property name=\"near-tie-flip\" value=\"{}\"/></properties>\n", said);
  }
  if (row.verdict.row_class == RowClass::structured || (flip && strict)) {
    text +=
        fmt::format("      <failure type=\"{}\" message=\"{}\"/>\n", to_string(row.verdict.row_class), said);
  }
  return text + "    </testcase>\n";
}

constexpr double kPlotWidth = 720, kPlotHeight = 180, kPlotLeft = 70, kPlotBottom = 28;

// A bar a bin on a logarithmic scale from the least to the greatest value that is not 0.
std::string plot(const std::string& title, const PositionProfile& profile,
                 double (*value)(const PositionProfile::Bin&)) {
  double least = 0, greatest = 0;
  for (size_t i = 0; i < profile.n_bins(); ++i) {
    const double x = value(profile.bin(i));
    if (!(x > 0)) continue;
    least = least == 0 ? x : std::min(least, x);
    greatest = std::max(greatest, x);
  }
  std::string svg = fmt::format("<h2>{}</h2>\n", title);
  if (greatest == 0) return svg + "<p>0 at every position.</p>\n";
  const double low = std::floor(std::log10(least)), high = std::max(low + 1, std::ceil(std::log10(greatest)));
  const double x_step = kPlotWidth / static_cast<double>(profile.n_bins());
  svg += fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kPlotLeft + kPlotWidth,
                     kPlotHeight + kPlotBottom, title);
  for (const double exponent : {low, std::round((low + high) / 2), high}) {
    const double y = kPlotHeight * (1 - (exponent - low) / (high - low));
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">1e{5:.0f}</text>\n",
        kPlotLeft, kPlotLeft + kPlotWidth, y, kPlotLeft - 6, std::max(10.0, y + 4), exponent);
  }
  for (size_t i = 0; i < profile.n_bins(); ++i) {
    const double x = value(profile.bin(i));
    if (!(x > 0)) continue;
    const double height = std::max(1.0, kPlotHeight * (std::log10(x) - low) / (high - low));
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"><title>position {}: {:.6g}"
        "</title></rect>\n",
        kPlotLeft + x_step * static_cast<double>(i), kPlotHeight - height, std::max(0.5, x_step * 0.85),
        height, i * profile.width(), x);
  }
  const size_t last = (profile.n_bins() - 1) * profile.width();
  return svg + fmt::format(
                   "<text x=\"{}\" y=\"{}\">position 0</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}"
                   "</text></svg>\n",
                   kPlotLeft, kPlotHeight + 20, kPlotLeft + kPlotWidth, kPlotHeight + 20, last);
}

std::string cells(const std::vector<std::string>& texts, const char* tag) {
  std::string row = "<tr>";
  for (const std::string& text : texts) row += fmt::format("<{0}>{1}</{0}>", tag, escape_markup(text));
  return row + "</tr>\n";
}

std::string sides_table(const CompareResult& r) {
  std::string text = "<table>\n" + cells({"", "reference", "candidate"}, "th");
  const auto add = [&text](const char* label, const std::string& a, const std::string& b) {
    text += cells({label, a, b}, "td");
  };
  add("file", r.reference_name, r.candidate_name);
  add("model", r.reference.model_name, r.candidate.model_name);
  add("weights", r.reference.weights_digest, r.candidate.weights_digest);
  add("command", r.reference.command, r.candidate.command);
  add("precision", r.reference.precision, r.candidate.precision);
  add("device", r.reference.backend + " " + r.reference.device,
      r.candidate.backend + " " + r.candidate.device);
  add("store", to_string(r.reference.store), to_string(r.candidate.store));
  return text + "</table>\n";
}

std::string summary_table(const CompareResult& r) {
  std::string text = "<table>\n" + cells({"records", fmt::to_string(r.records)}, "td") +
                     cells({"rows", fmt::format("{} of {}", r.totals.rows, r.rows_expected)}, "td");
  for (const SummaryMetric& metric : summary_metrics()) {
    const double value = metric.value(r.totals);
    if (value == metric.unremarkable) continue;
    text += cells({std::string(metric.label),
                   metric.count ? fmt::format("{:.0f}", value) : fmt::format("{:.6g}", value)},
                  "td");
  }
  return text + "</table>\n";
}

std::string worst_table(const CompareResult& r, const TokenNames& names) {
  if (r.worst.empty()) return "";
  const auto token = [&names](uint32_t id) {
    return id < names.size() ? fmt::format("{} {}", id, names[id])
           : id == kNoToken  ? "none"
                             : fmt::to_string(id);
  };
  std::string text =
      "<h2>Rows that differ most</h2>\n<table>\n" +
      cells({"record", "position", "max |diff|", "at token", "KLD", "argmax", "candidate's", "margin"}, "th");
  for (const auto& [key, row] : r.worst) {
    text += cells({key.record, fmt::to_string(key.position), fmt::format("{:.6g}", row.max_abs),
                   token(row.max_token), fmt::format("{:.6g}", row.kld), token(row.reference.first),
                   token(row.candidate.first), fmt::format("{:.6g}", row.reference.margin())},
                  "td");
  }
  return text + "</table>\n";
}

constexpr const char* kPageStart = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>logitgate compare</title>
<style>
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #ffffff; --line: #d5d8dc; --bar: #2f6fb3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --paper: #16181b; --line: #3a3e44; --bar: #79b4ee; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
       max-width: 60rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; }
td, th { border-bottom: 1px solid var(--line); padding: .2rem .8rem .2rem 0; text-align: left; overflow-wrap: anywhere;
         font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg rect { fill: var(--bar); } svg text { fill: var(--ink); font-size: 11px; }
svg .grid { stroke: var(--line); }
</style></head><body>
<h1>logitgate compare</h1>
)";

}  // namespace

std::string csv_header(const TokenNames& names) {
  std::string line = "record,position";
  for (const RowMetric& metric : row_metrics()) line += fmt::format(",{}", metric.key);
  if (!names.empty()) line += ",max_abs_diff_text,reference_text,candidate_text";
  return line + "\n";
}

std::string csv_row(const RowKey& key, const RowStats& row, const TokenNames& names) {
  std::string line = fmt::format("{},{}", csv_field(key.record), key.position);
  for (const RowMetric& metric : row_metrics()) {
    const double value = metric.value(row);
    if (metric.count) {
      line += std::isnan(value) ? "," : fmt::format(",{:.0f}", value);
    } else {
      line += fmt::format(",{}", number_text(value));
    }
  }
  if (!names.empty()) {
    line += fmt::format(",{},{},{}", csv_token(row.max_token, names), csv_token(row.reference.first, names),
                        csv_token(row.candidate.first, names));
  }
  return line + "\n";
}

std::string compare_html(const CompareResult& r, const TokenNames& names) {
  std::string page = kPageStart;
  page += r.identical() ? "<p>Every row is bit-identical.</p>\n" : "<p>The dumps differ.</p>\n";
  page += sides_table(r) + summary_table(r);
  const std::string per =
      r.profile.width() == 1 ? "" : fmt::format(", {} positions a bar", r.profile.width());
  page += plot("Largest |diff| by position" + per, r.profile,
               [](const PositionProfile::Bin& b) { return b.max_abs; });
  page += plot("Mean KLD by position" + per, r.profile, [](const PositionProfile::Bin& b) {
    return b.rows > 0 ? b.sum_kld / static_cast<double>(b.rows) : 0;
  });
  return page + worst_table(r, names) + "</body></html>\n";
}

std::string gate_junit(const GateResult& r) {
  const std::vector<GateRow> failing = r.failing.sorted();
  const size_t failed =
      static_cast<size_t>(std::count_if(failing.begin(), failing.end(), [&r](const GateRow& row) {
        return row.verdict.row_class == RowClass::structured || r.strict;
      }));
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
      "  <testsuite name=\"logitgate gate\" tests=\"{}\" failures=\"{}\" errors=\"0\">\n    <properties>\n",
      failing.size() + 1, failed + (r.pass ? 0 : 1));
  const auto property = [&text](const char* name, const std::string& value) {
    text += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", name, escape_markup(value));
  };
  property("reference", r.reference_name);
  property("candidate", r.candidate_name);
  property("verdict", std::string(to_string(r.verdict)));
  property("rows_compared", fmt::to_string(r.rows_compared));
  property("near_tie_flips", fmt::to_string(r.counts[1]));
  property("structured", fmt::to_string(r.counts[2]));
  property("max_diff", number_text(r.max_diff));
  property("drift_over_expected", number_text(r.drift_over_expected));
  text += "    </properties>\n    <testcase classname=\"logitgate.gate\" name=\"verdict\">\n";
  if (!r.pass) {
    std::string why =
        fmt::format("{} of {} rows structured, {} near-tie-flip", r.counts[2], r.rows_compared, r.counts[1]);
    for (const std::string& violation : r.violations) why += fmt::format(", {} violated", violation);
    text += fmt::format("      <failure type=\"{}\" message=\"{}\"/>\n", to_string(r.verdict), why);
  }
  text += "    </testcase>\n";
  for (const GateRow& row : failing) text += test_case(row, r.strict);
  return text + "  </testsuite>\n</testsuites>\n";
}

std::string trouble_junit(const std::string& message) {
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
      "  <testsuite name=\"logitgate gate\" tests=\"1\" failures=\"0\" errors=\"1\">\n"
      "    <testcase classname=\"logitgate.gate\" name=\"verdict\">\n"
      "      <error type=\"trouble\" message=\"{}\"/>\n    </testcase>\n  </testsuite>\n</testsuites>\n",
      escape_markup(message));
}

}  // namespace logitgate
