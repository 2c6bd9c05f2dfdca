// fmt as a static library. Its headers hold the whole implementation; without FMT_HEADER_ONLY this inclusion
// defines the out-of-line functions, and the lines below the templates that other files only declare.
#include <fmt/format-inl.h>

template fmt::detail::thousands_sep_result<char> fmt::detail::thousands_sep_impl<char>(
    fmt::detail::locale_ref);
template char fmt::detail::decimal_point_impl<char>(fmt::detail::locale_ref);
template fmt::detail::dragonbox::decimal_fp<float> fmt::detail::dragonbox::to_decimal(float) noexcept;
template fmt::detail::dragonbox::decimal_fp<double> fmt::detail::dragonbox::to_decimal(double) noexcept;
template void fmt::detail::buffer<char>::append(const char*, const char*);
template void fmt::detail::vformat_to(fmt::detail::buffer<char>&, fmt::string_view,
                                      fmt::basic_format_args<fmt::buffer_context<char>>,
                                      fmt::detail::locale_ref);
