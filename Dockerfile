# The program alone, for an unprivileged user: no shell, no package manager.
# Time zones (for scan.schedule) are inside the binary.

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -tags timetzdata -ldflags "-s -w" -o /out/toc ./cmd/toc && mkdir /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/toc /toc
# Where the embedded store makes its files (store.sqlite.dir is data, seen from
# /); mount a volume to keep them.
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
EXPOSE 8080
# Without a config it listens on 127.0.0.1 inside the container, so to be reached:
# docker run -e TOC_HTTP_LISTEN=:8080 -e TOC_HTTP_TOKENS=… -p 127.0.0.1:8080:8080 …
ENTRYPOINT ["/toc"]
CMD ["serve"]
