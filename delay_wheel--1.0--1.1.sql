/* delay_wheel--1.0--1.1.sql: what came with 1.1: pictures, forecast, progress, for those who watch */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION delay_wheel UPDATE TO '1.1'" to load this file. \quit
