# PostgreSQL with delay_wheel: the official image, with the library preloaded and the
# extension created in the database that the container makes.
#
#   docker build --tag delay_wheel .
#   docker build --tag delay_wheel --build-arg PG_MAJOR=19 .         # 15 to 19
#   docker run --env POSTGRES_PASSWORD=... delay_wheel
#
# For CloudNativePG see doc/install.md: another IMAGE, or --target extension.

ARG PG_MAJOR=17
ARG DEBIAN=bookworm
# what the files are added to: of the same major and the same Debian
ARG IMAGE=postgres:${PG_MAJOR}-${DEBIAN}

FROM postgres:${PG_MAJOR}-${DEBIAN} AS build
ARG PG_MAJOR
RUN apt-get update && \
    apt-get install --yes --no-install-recommends gcc libc6-dev make postgresql-server-dev-${PG_MAJOR}
COPY . /src
RUN make -j"$(nproc)" -C /src PG_CONFIG=/usr/lib/postgresql/${PG_MAJOR}/bin/pg_config && \
    make -C /src PG_CONFIG=/usr/lib/postgresql/${PG_MAJOR}/bin/pg_config DESTDIR=/out install

# The files alone, where CloudNativePG looks for them in an image volume.
FROM scratch AS extension
ARG PG_MAJOR
COPY --from=build /out/usr/lib/postgresql/${PG_MAJOR}/lib/ /lib/
COPY --from=build /out/usr/share/postgresql/${PG_MAJOR}/extension/ /share/extension/

FROM ${IMAGE}
COPY --from=build /out/ /
COPY scripts/create_extension.sql /docker-entrypoint-initdb.d/delay_wheel.sql
CMD ["postgres", "-c", "shared_preload_libraries=delay_wheel"]
