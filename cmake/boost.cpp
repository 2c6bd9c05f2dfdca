// What Boost.Asio, Beast and URL are besides templates, as dependencies.cmake says.
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
#include <boost/url/src.hpp>
