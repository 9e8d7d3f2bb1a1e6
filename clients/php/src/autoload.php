<?php

// For programs without Composer: require this file.

declare(strict_types=1);

foreach (['Errors', 'Values', 'Http', 'Transport', 'Client', 'Worker', 'Webhook'] as $file) {
    require_once __DIR__ . '/' . $file . '.php';
}
