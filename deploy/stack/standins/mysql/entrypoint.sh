# The first process of the stand-in for the image mysql: makes the data when there is none, and gives root a password. The
# server is of another release than the system around it, so it is started by its own loader.
set -eu
root=/opt/mysql/usr
libraries=$(echo $root/lib/*-linux-gnu)
password=$(printf %s "$MYSQL_ROOT_PASSWORD" | sed "s/[\\\\']/\\\\&/g")
cat >/tmp/root.sql <<END
ALTER USER root@localhost IDENTIFIED BY '$password';
CREATE USER IF NOT EXISTS root@'%' IDENTIFIED BY '$password';
GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;
END
set -- "$libraries"/ld-linux-*.so.* --library-path "$libraries" $root/sbin/mysqld --no-defaults --user=root \
  --datadir=/var/lib/mysql --lc-messages-dir=$root/share/mysql --secure-file-priv=NULL --mysqlx=OFF \
  --socket=/tmp/mysqld.sock --pid-file=/tmp/mysqld.pid "$@"
[ -d /var/lib/mysql/mysql ] || "$@" --initialize-insecure
exec "$@" --init-file=/tmp/root.sql
