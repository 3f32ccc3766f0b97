// What compare and gate print: tables for people, JSON, CSV, JUnit XML and a self-contained HTML page.
// Contract: pure text from results. JSON and CSV hold numbers in full precision; numbers that are not finite are the strings
// "NaN", "Infinity", "-Infinity" in JSON. Text that comes from files is escaped: no control character reaches a terminal,
// no markup reaches a page. JSON keys may be added, never renamed.
#pragma once

#include <string>
#include <vector>

#include "lib/compare.h"
#include "lib/gate.h"

namespace logitgate {

// The texts of a vocabulary by token id, to name tokens with; empty where no model was given.
using TokenNames = std::vector<std::string>;
// From a model file's tokenizer.ggml.tokens; Error{corrupt} where it has none.
TokenNames load_token_names(const std::string& model);

std::string compare_table(const CompareResult& result, const TokenNames& names);
std::string compare_json(const CompareResult& result, const TokenNames& names);
std::string compare_html(const CompareResult& result, const TokenNames& names);
// The first line, and one a row.
std::string csv_header(const TokenNames& names);
std::string csv_row(const RowKey& key, const RowStats& row, const TokenNames& names);

std::string gate_table(const GateResult& result);
// One object; the rows are those listed in the result.
std::string gate_json(const GateResult& result);
// The same object in pieces, every row among them: begin, then rows joined by ",\n", then end.
std::string gate_json_begin();
std::string gate_json_row(const GateRow& row);
std::string gate_json_end(const GateResult& result);
std::string gate_junit(const GateResult& result);
// The page of a gate that could not judge.
std::string trouble_junit(const std::string& message);

// Text made safe for XML and HTML.
std::string escape_markup(std::string_view text);

}  // namespace logitgate
